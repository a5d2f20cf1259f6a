"""What everything else speaks of, as plain data: types, arrays, launches, problems, stages, operations, results."""
