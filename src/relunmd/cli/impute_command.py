"""`relunmd impute`: replace the missing and the limited values of a matrix file."""

from typing import Any

import click
from click import FloatRange, IntRange, option

import relunmd
from relunmd.cli import shared
from relunmd.cli.process import main
from relunmd.errors import InputError


@main.command()
@shared.input_argument("source", metavar="IN")
@option("--output", "-o", required=True, metavar="OUT", type=click.Path(), help="As .npy, .csv, .h5, …")
@option("--rank", "-r", "n_components", type=IntRange(1), default=5, metavar="R", help="Number of components.")
@option("--lower", metavar="LIMIT|FILE", help="Limits of detection: a number, or a file with one for each column.")
@option("--upper", metavar="LIMIT|FILE", help="Ceilings: a number, or a file with one for each column.")
@option("--ridge", type=FloatRange(0), metavar="λ", help="Add λ‖X‖(‖W‖² + ‖H‖²); 3e-3 by default.")
@option("--algorithm", default="auto", metavar="NAME", help="qn, 3b-factored or em.")
@option("--seed", "random_state", type=IntRange(0), metavar="N", help="Same seed, same result.")
@option("--errors", metavar="FILE", type=click.Path(), help="Also write the standard error of each value.")
@shared.threads_option
@shared.options("array", "names", "force", "json", "quiet")
def impute(source: str, output: str, errors: str | None, threads: int | None, **options: Any) -> None:
    """Write the matrix in IN to OUT, with its missing values predicted.

    NaN and empty cells are missing. With --lower or --upper, values up to or from the limits on are replaced too, by
    values within the limits. All other values are written as they are. The matrix must be nonnegative and fit into
    memory.

    Examples
    --------
      relunmd impute digits.npy --rank 16 --upper 16 --seed 0 -o unsaturated.npy
      relunmd impute digits.npy --lower 2 --errors errors.npy -o detected.csv
    """
    import numpy as np
    from scipy import sparse

    from relunmd.io.writers import Parts, check_suffix, write_matrix

    limits = {name: options.pop(name) for name in ("lower", "upper")}
    inputs = [source, *(path for path in limits.values() if path is not None)]
    places = [shared.check_output(output, *inputs)]
    if errors is not None:
        places.append(shared.check_output(errors, *inputs, output))
    for place in places:
        check_suffix(place)
    limits = {name: shared.limit(name, value) for name, value in limits.items()}
    with shared.opened(source) as opened, shared.working("imputing"):
        X = opened.X.toarray() if sparse.issparse(opened.X) else np.asarray(opened.X[...])
        if X.dtype.kind != "f":
            X = X.astype(np.float64)
        missing = int(np.isnan(X).sum())
        imputer = relunmd.LowRankImputer(
            keep_empty_features=True, n_jobs=threads or shared.ALL_CORES, **limits, **options
        ).fit(X)
        if imputer.model_ is None:
            raise InputError(f"{source} must have a positive value within its limits; got none.")
        write_matrix(places[0], Parts.of(imputer.transform(X)))
        if errors is not None:
            write_matrix(places[1], Parts.of(imputer.standard_error(X)))
    facts = {"input": source, "output": output, "missing": missing, "noise": imputer.noise_}
    facts |= {"rank": imputer.model_.n_components_, "error": imputer.model_.error_, "errors": errors}
    shared.report(facts, f"{output}: {X.shape[0]} × {X.shape[1]}, {missing} missing values, noise {imputer.noise_:.4g}")
