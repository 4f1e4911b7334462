"""The drivers for standard input and output: a child process on one side, this process on the other."""
