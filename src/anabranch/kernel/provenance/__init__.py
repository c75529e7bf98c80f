"""What was done on a branch and when: the age of rows however often their files were rewritten."""
