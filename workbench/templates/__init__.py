"""What `workbench new` copies: operations that are whole but for their kernel, in whose place is an empty one."""
