"""Which operations there are: built in, of installed packages, of the project around the working directory."""
