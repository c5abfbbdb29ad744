"""Small dense factorizations, and truncated SVDs of matrices that are read only by passes over rows."""
