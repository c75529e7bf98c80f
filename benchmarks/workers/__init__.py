"""What each contestant does in a benchmark; every module runs in that contestant's own interpreter.

A worker process does one operation: it reads its arguments as JSON from stdin, prepares and warms up
outside of the clock, does the work inside of it, and answers with the seconds, the peak of memory and facts
by which the answers of all contestants are compared.
"""
