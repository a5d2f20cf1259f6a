"""What operations of any kind share: checks of the arrays that callers give, and of what libraries take."""
