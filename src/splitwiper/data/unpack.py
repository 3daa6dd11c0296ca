"""Take the expected files, and nothing else, out of a downloaded archive."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from splitwiper.data.published import Published
from splitwiper.errors import DataError


def unpack(what: Published, archive: Path, target: Path) -> None:
    """Write the set's files from a ``.tar.gz`` archive into ``target``, and pass over whatever else is in it.

    Names are compared, never used as paths: nothing can be written elsewhere.

    Raises:
        DataError: a name leaves the archive's folder, a file is there twice, is a link or too large, or is missing.
    """
    wanted = {f"{what.folder}/{file}": file for file in what.files}
    found: set[str] = set()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\\" in member.name:
                    raise _refused(archive, f"it holds {member.name!r}, a path out of its own folder")
                file = wanted.get(str(name))
                if file is None:
                    continue
                if not member.isreg() or file in found or member.size > what.limit:
                    why = "there twice" if file in found else "not a plain file" if not member.isreg() else "too large"
                    raise _refused(archive, f"{member.name!r} is {why}")
                found.add(file)
                stream = tar.extractfile(member)
                with (target / file).open("wb") as out:
                    if stream is not None:
                        shutil.copyfileobj(stream, out)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise _refused(archive, f"it is not a whole archive ({problem})") from problem
    if missing := sorted(set(what.files) - found):
        raise _refused(archive, f"{missing[0]!r} is not in it")


def _refused(archive: Path, why: str) -> DataError:
    return DataError(f"{archive.name} is refused: {why}. Nothing was kept: fetch it again, or use a mirror.")
