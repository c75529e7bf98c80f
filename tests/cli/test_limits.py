"""Too little memory and no room for temporary files are told as what they are."""

import tempfile

import pyarrow as pa
import pytest

import anabranch
from anabranch.arrow.files import translated
from anabranch.arrow.spill import Spill
from anabranch.cli.main import run
from anabranch.lineage.index.database import Database
from tests.support.tables import make_table, rows


def test_a_file_that_memory_does_not_hold_is_not_called_damaged():
    """Arrow's error for that is one of those that damaged files give as well."""
    with (
        pytest.raises(
            anabranch.StorageError, match="not enough memory to read the data file f.parquet"
        ) as raised,
        translated("f.parquet"),
    ):
        pa.allocate_buffer(1 << 62)
    assert not isinstance(raised.value, anabranch.CorruptTableError)


@pytest.mark.parametrize(
    "error", [MemoryError("malloc of size 64 failed"), RuntimeError("can't start new thread")]
)
def test_the_command_line_says_what_ran_out(tmp_path, monkeypatch, capsys, error):
    make_table(tmp_path).append(rows(0, 2))

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(anabranch.Table, "health", refuse)
    assert run(["-w", str(tmp_path), "health", "db.t"]) == 1
    said = capsys.readouterr().err
    assert "no more memory or threads" in said
    assert "not an error we know" not in said


@pytest.fixture
def no_temporary_folder(monkeypatch):
    """As on a machine whose disks for temporary files are full."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()


@pytest.mark.usefixtures("no_temporary_folder")
def test_rows_that_need_no_disk_are_written_without_a_temporary_folder(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    assert table.scan().count() == 3


@pytest.mark.usefixtures("no_temporary_folder")
def test_rows_that_need_disk_and_lineage_name_the_temporary_folder(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    spilled = table.scan().to_arrow()
    with Spill(spilled.schema) as spill, pytest.raises(anabranch.StorageError, match="temporary") as raised:
        spill.put([spilled])
    assert "TMPDIR" in raised.value.hint
    with pytest.raises(anabranch.StorageError, match="temporary") as raised:
        Database.temporary()
    assert "TMPDIR" in raised.value.hint
