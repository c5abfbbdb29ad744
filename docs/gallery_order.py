"""The order of the gallery: first results, then applications, then what is special."""

from sphinx_gallery.sorting import FileNameSortKey

ORDER = [
    "digits",
    "identity",
    "compression",
    "counts",
    "rank",
    "pipeline",
    "missing_pixels",
    "detection_limits",
    "single_cell",
    "link_prediction",
    "ridge",
    "out_of_core",
    "own_algorithm",
]


class GalleryOrder(FileNameSortKey):
    """Sort examples as in `ORDER`; others come last, by name."""

    def __call__(self, filename):
        name = filename.removeprefix("plot_").removesuffix(".py")
        return ORDER.index(name) if name in ORDER else len(ORDER), filename
