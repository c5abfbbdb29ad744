"""Files: readers and writers of matrices, the archive that results and checkpoints are stored in, atomic writes."""
