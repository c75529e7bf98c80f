"""What the common options of the command line said."""

warehouse = "warehouse"
debug = False
