"""The sections of a page, each a list of paragraphs in Markdown."""
