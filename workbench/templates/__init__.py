"""What `workbench new` copies. `short` are whole operations; the others are whole but for their kernel, in whose place
is an empty one. `demo` has the kernel of `workbench demo`."""
