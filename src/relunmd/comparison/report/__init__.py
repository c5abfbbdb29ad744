"""Reports of comparisons and of the paper's experiments: content as data, written as an HTML page, Markdown and CSV."""
