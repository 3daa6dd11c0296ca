from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from splitwiper.data.files import read_data, read_inputs
from splitwiper.data.tables import Table
from splitwiper.errors import DataError


def write(folder: Path, text: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_npz(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "a.npz", inputs=x, labels=np.array([2, 0, 1]))
    inputs, labels = read_data(tmp_path / "a.npz")
    assert isinstance(inputs, np.ndarray)
    assert np.array_equal(inputs, x)
    assert labels == [2, 0, 1]
    assert all(type(label) is int for label in labels)
    assert np.array_equal(read_inputs(str(tmp_path / "a.npz")), x)


def test_npz_with_several_inputs_and_text_labels(tmp_path: Path) -> None:
    ids, mask = np.ones((2, 3), dtype=np.int64), np.zeros((2, 3), dtype=bool)
    np.savez_compressed(tmp_path / "a.npz", **{"inputs.ids": ids, "inputs.mask": mask, "labels": ["x", "y"]})
    inputs, labels = read_data(tmp_path / "a.npz")
    assert isinstance(inputs, dict)
    assert set(inputs) == {"ids", "mask"}
    assert labels == ["x", "y"]


def test_npz_labels_are_what_they_would_be_in_csv(tmp_path: Path) -> None:
    texts = ["0", "-4", "007", " a ", "b"]
    np.savez(tmp_path / "a.npz", inputs=np.ones((5, 1)), labels=np.array(texts))
    _, labels = read_data(tmp_path / "a.npz")
    assert (
        labels
        == read_data(write(tmp_path, "x,k\n" + "".join(f"1,{t}\n" for t in texts)))[1]
        == [0, -4, "007", "a", "b"]
    )
    np.savez(tmp_path / "a.npz", inputs=np.ones((2, 1)), labels=np.array(["a", ""]))
    with pytest.raises(DataError, match=r"a\.npz, row 1: the label is empty"):
        read_data(tmp_path / "a.npz")


def test_csv(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeffa, b ,kind\r\n1,2.5,"x, y"\r\n\r\n-3,1e2,7\r\n')
    inputs, labels = read_data(path)
    assert isinstance(inputs, Table)
    assert inputs.columns == ("a", "b")
    assert inputs.values.dtype == np.float32
    assert inputs.values.tolist() == [[1, 2.5], [-3, 100]]
    assert labels == ["x, y", 7]


def test_csv_labels_look_like_integers_only_if_they_read_back_the_same(tmp_path: Path) -> None:
    _, labels = read_data(write(tmp_path, "a,k\n" + "".join(f"1,{t}\n" for t in ("0", "-4", "007", "-0", "1.0", "+2"))))
    assert labels == [0, -4, "007", "-0", "1.0", "+2"]


def test_csv_label_column_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "kind,a,b\nx,1,2\ny,3,4\n")
    inputs, labels = read_data(path, label="kind")
    assert np.asarray(inputs).tolist() == [[1, 2], [3, 4]]
    assert labels == ["x", "y"]
    assert np.array_equal(read_inputs(path, label="kind"), inputs)
    assert np.asarray(read_inputs(write(tmp_path, "a,b\n1,2\n"))).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n", "no rows below its header"),
        ("k\nx\n", "at least one feature"),
        ("a,k\n1,x\ntwo,y\n", r"line 3, column 'a': 'two' is not a number"),
        ("a,k\n1,x\n,y\n", r"line 3, column 'a': the cell is empty"),
        ("a,k\n1,x\n2\n", r"line 3: 1 cells, the header has 2"),
        ("a,k\n1,\n", "line 2: the label is empty"),
        ("a,a,k\n1,2,x\n", "two columns are called 'a'"),
        ("a;k\n1;x\n", "save it with commas"),
        ("1,2\n3,4\n", "add a line that names the columns"),
        ("0,1,2\n3,4,5\n", r"first line holds numbers \(0, 1\)"),
        ("1.5,2.5,high\n3,4,low\n", r"first line holds numbers \(1.5, 2.5\), not names"),
        ("7,high\n3,low\n", "first line holds numbers"),
        ('a,k\n1,"x\n', "quotation marks"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_data(write(tmp_path, text))


def test_csv_columns_may_be_numbered(tmp_path: Path) -> None:
    """Programs name columns like that where they have no other names."""
    for text in ("0,1,2,kind\n5,6,7,x\n", "2019,2020,kind\n5,6,x\n", "a,2020,kind\n5,6,x\n"):
        inputs, labels = read_data(write(tmp_path, text))
        assert len(inputs) == 1 and labels == ["x"]


def test_csv_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,k\n1,é\n".encode("latin-1"))
    with pytest.raises(DataError, match="save it as UTF-8"):
        read_data(tmp_path / "a.csv")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "age,kind\n1,x\n")
    with pytest.raises(DataError, match=r"no column 'kinds'. Did you mean 'kind'"):
        read_data(path, label="kinds")
    with pytest.raises(DataError, match="Its columns are age, kind"):
        read_inputs(path, label="zzzzz")


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    write(tmp_path, "a,k\n1,x\n", "north.csv")
    with pytest.raises(DataError, match=r"Did you mean 'north.csv'"):
        read_data(tmp_path / "nort.csv")
    with pytest.raises(DataError, match="Check the path"):
        read_data(tmp_path / "no" / "where.npz")
    with pytest.raises(DataError, match=r"end in .npz or .csv, not in '.txt'"):
        read_inputs(tmp_path / "rows.txt")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="is not a file"):
        read_inputs(tmp_path / "folder.npz")


def test_npz_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    x, y = np.zeros((2, 1), dtype=np.float32), np.array([0, 1])

    def refused(words: str, **arrays: object) -> None:
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=words):
            read_data(path)

    refused("no array 'inputs'; it has 'x', 'labels'", x=x, labels=y)
    refused("no array 'labels'", inputs=x)
    refused("'labels' holds Python objects, which are never unpickled", inputs=x, labels=np.array(["a", 1], object))
    refused("'inputs' holds Python objects", inputs=np.array([[1], [1, 2]], object), labels=y)
    refused("one integer or text a row", inputs=x, labels=y.astype(float))
    refused("one integer or text a row", inputs=x, labels=y[:, None])
    refused("no row dimension", inputs=np.float32(1), labels=y)
    refused("both 'inputs' and 'inputs.a'", **{"inputs": x, "inputs.a": x, "labels": y})
    np.savez(path, inputs=x, labels=y)
    with pytest.raises(DataError, match=r"is for .csv files"):
        read_data(path, label="kind")


def test_a_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, inputs=np.random.default_rng(0).normal(size=(50, 5)), labels=np.arange(50))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"not a whole .npz file"):
        read_data(path)
    path.write_bytes(whole[:200] + b"????" + whole[204:])
    with pytest.raises(DataError, match=r"not a whole .npz file"):
        read_data(path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(path)
    with pytest.raises(DataError, match=r"not a whole .npz file"):
        read_data(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs", b"raw bytes")
    with pytest.raises(DataError):
        read_data(path)
