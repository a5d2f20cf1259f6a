"""Records for readers: tables, plots, pages, comparisons."""
