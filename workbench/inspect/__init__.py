"""What a kernel does, looked at closely: profiles, traces, files of PTX."""
