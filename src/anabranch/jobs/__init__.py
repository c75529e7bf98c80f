"""Jobs as files: declared in a few lines, run on main, on a branch, or from the positions of a tag."""
