"""Text in CSV files is text for spreadsheets too."""

import csv

import pytest

from relunmd.comparison.report.report_files import write_csv


@pytest.mark.parametrize("label", ["=HYPERLINK(1)", "+1+cmd", "-1+cmd", "@SUM(A1)", "\t=1", "\n=1"])
def test_a_label_is_no_formula(tmp_path, label):
    write_csv(tmp_path / "a.csv", ("algorithm", label), [(label, -1.5, "-0.25", "+1e-3", "a=b", "", None, 3)])
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as lines:
        header, row = csv.reader(lines)
    assert header == ["algorithm", f"'{label}"]
    assert row == [f"'{label}", "-1.5", "-0.25", "+1e-3", "a=b", "", "", "3"]


def test_a_carriage_return_ends_no_row(tmp_path):
    write_csv(tmp_path / "a.csv", ("a", "b"), [("x\r=1", 2)])
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as lines:
        assert list(csv.reader(lines)) == [["a", "b"], ["x\n=1", "2"]]
