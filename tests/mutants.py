"""Damaged and malicious copies of our .npz files.

`mutants` yields (kind of damage, bytes). Some have valid checksums and a valid list of members, as somebody who knows
the format would write them; the others are what disks and transfers do.
"""

import io
import json
import pickle
import zipfile

import numpy as np


def mutants(whole, count, seed):
    random = np.random.default_rng(seed)
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        yield kind.__name__, kind(whole, random)


def members_of(whole):
    with zipfile.ZipFile(io.BytesIO(whole)) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def sealed(members, compression=zipfile.ZIP_STORED, reseal=True):
    """Return a file of these members, with a valid list of them if wanted and possible."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as zipped:
        for name, content in members.items():
            if name != "metadata.npy":
                zipped.writestr(name, content)
        about = members.get("metadata.npy")
        if about is not None and reseal:
            try:
                told = json.loads(np.load(io.BytesIO(about)).tobytes())
                told["members"] = {info.filename.removesuffix(".npy"): info.CRC for info in zipped.infolist()}
                about = npy(np.frombuffer(json.dumps(told).encode(), np.uint8))
            except (ValueError, TypeError, RecursionError):
                pass
        if about is not None:
            zipped.writestr("metadata.npy", about)
    return out.getvalue()


def npy(array, allow_pickle=False):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=allow_pickle)
    return out.getvalue()


def _truncated(whole, random):
    return whole[: random.integers(len(whole))]


def _flipped(whole, random):
    changed = bytearray(whole)
    for _ in range(random.integers(1, 9)):
        changed[random.integers(len(changed))] ^= 1 << random.integers(8)
    return bytes(changed)


def _overwritten(whole, random):
    changed, start = bytearray(whole), random.integers(len(whole))
    length = random.integers(1, 300)
    changed[start : start + length] = random.bytes(length)
    return bytes(changed)


def _exchanged(whole, random):
    members = members_of(whole)
    one, other = random.choice(list(members), 2, replace=False)
    members[one], members[other] = members[other], members[one]
    return sealed(members, reseal=bool(random.integers(2)))


def _some(members, random):
    return random.choice([name for name in members if name != "metadata.npy"])


def _reshaped(whole, random):
    """Change the shape in the header, with or without the content."""
    members = members_of(whole)
    name = _some(members, random)
    array = np.load(io.BytesIO(members[name]))
    shapes = [(2**40, 2**20), (-1, 5), (10**18,), (0,), (1, 1), (3, 4, 5), (2**62, 2**62), (array.size,), (2, 2)]
    shape = shapes[random.integers(len(shapes))]
    if random.integers(2) and min(shape) >= 0 and max(shape) < 1000:
        members[name] = npy(np.zeros(shape, array.dtype))
    else:
        header = io.BytesIO()
        dtypes = ["<f8", "<f4", "|O", "<U9", "<i8", "|V8", "<c16", ">f8", "<m8[s]"]
        told = {"descr": dtypes[random.integers(len(dtypes))], "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, told)
        members[name] = header.getvalue() + array.tobytes()
    return sealed(members)


class _Hostile:
    def __reduce__(self):
        return print, ("EXECUTED",)


def _pickled(whole, random):
    members = members_of(whole)
    name = _some(members, random) if random.integers(4) else "metadata.npy"
    holder = np.empty(3, dtype=object)
    holder[:] = [_Hostile()] * 3
    members[name] = npy(holder, allow_pickle=True) if random.integers(2) else pickle.dumps(_Hostile())
    return sealed(members)


def _compressed(whole, random):
    """Compress zeros: a few kB that decompress to 4 GB."""
    members = members_of(whole)
    name = _some(members, random)
    header = io.BytesIO()
    told = {"descr": "<f8", "fortran_order": False, "shape": (2**29,)}
    np.lib.format.write_array_header_1_0(header, told)
    members[name] = header.getvalue() + bytes(1 << 20)
    return sealed(members, zipfile.ZIP_DEFLATED)


def _valued(whole, random):
    """Use values that are not finite, or another dtype."""
    members = members_of(whole)
    name = _some(members, random)
    array = np.load(io.BytesIO(members[name]))
    kind = random.integers(4)
    if kind < 2 and array.size and array.dtype.kind == "f":
        array = array.copy()
        array.flat[random.integers(array.size)] = [np.nan, -np.inf][kind]
    elif kind == 2:
        array = array.astype(np.float32 if array.dtype == np.float64 else np.int16)
    else:
        array = np.concatenate([array.ravel(), array.ravel()])
    members[name] = npy(array)
    return sealed(members)


def _reworded(whole, random):
    """Change the metadata to something else, or to nonsense."""
    members = members_of(whole)
    told = json.loads(np.load(io.BytesIO(members["metadata.npy"])).tobytes())
    values = [None, -1, 10**400, "x" * 50, [], {}, True, [[1] * 3], float("nan"), {"a": {"b": 1}}, "../../etc/passwd"]
    value = values[random.integers(len(values))]
    at = told
    while True:
        key = random.choice(list(at)) if isinstance(at, dict) else random.integers(len(at))
        if isinstance(at[key], dict | list) and at[key] and random.integers(3):
            at = at[key]
            continue
        if isinstance(at, dict) and not random.integers(4):
            del at[key]
        else:
            at[key] = value
        break
    text = json.dumps(told).encode()
    if not random.integers(6):
        text = [b"[" * 100_000, b"", b"\xff\xfe", b"3", b"{" * 5][random.integers(5)]
    members["metadata.npy"] = npy(np.frombuffer(text, np.uint8))
    return sealed(members)


def _lost(whole, random):
    """Remove a member, add one, or repeat one."""
    members = members_of(whole)
    name = random.choice(list(members))
    kind = random.integers(3)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members["0.state.more.npy"] = members[name]
    else:
        members[f"{name.removesuffix('.npy')}"] = members[name]
    return sealed(members, reseal=bool(random.integers(2)))


_KINDS = (
    _truncated,
    _flipped,
    _overwritten,
    _exchanged,
    _reshaped,
    _pickled,
    _compressed,
    _valued,
    _reworded,
    _lost,
)

DAMAGES = (_truncated, _flipped, _overwritten)
"""Damages of any file: functions of bytes and a random generator that return bytes."""
