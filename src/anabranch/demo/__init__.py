"""The main job on real input: flights of 2013 stream through tables, survive a kill and are checked."""
