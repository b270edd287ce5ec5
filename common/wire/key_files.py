"""A directory of keys: one readable file for each public half, and one with mode 0600 for each secret."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.common.config import load
from headrace.common.errors import ConfigError, describe_os_error
from headrace.common.wire.keys import BUFFER, Key, Secret, check_name, holder, new_pair
from headrace.common.wire.network import NetworkConfig

PUBLIC, SECRET = ".public", ".secret"
OTHERS, WRITABLE = 0o077, 0o022  # bits of a mode
MAX_BYTES = 4096
MAX_FILES = 10_000
T = TypeVar("T", Key, Secret)


class KeyFiles:
    """The keys in one directory.

    ``NAME.NUMBER.public`` are the public halves, several of one name while its key is being replaced; ``NAME.secret`` is the
    secret of the one with the highest number. The buffer needs the public halves and its own secret, everybody else one secret.

    Args:
        path: the directory; nothing is read or made until a method says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, network: NetworkConfig) -> KeyFiles:
        """Those that ``network.keys`` names."""
        return cls(Path(network.keys).expanduser())

    def secret_path(self, name: str) -> Path:
        """Where the secret of ``name`` lies."""
        return self.path / f"{name}{SECRET}"

    def secret(self, name: str, role: str | None = None) -> Secret:
        """The secret of ``name``, which must be for ``role`` where one is given.

        Raises:
            ConfigError: it is not there, others may read it, or it is of another role; names the file and the command that
                makes it right.
        """
        check_name(name)  # an id may be anything
        path = self.secret_path(name)
        command = f"headrace keys new {self.path} {name} --role {role or 'ROLE'}"
        try:
            found = _read(path, Secret, OTHERS, "600")
        except FileNotFoundError:
            raise ConfigError(
                f"network.keys: {path} is missing, so there is no key of {name!r}; where the buffer's keys are,"
                f" make it with `{command}`, and copy the file here"
            ) from None
        if role not in (None, found.role):
            raise ConfigError(
                f"network.keys: {path} is a key of role {found.role}, needed is {role}; make one with `{command}`"
            )
        return found

    def half(self, name: str) -> str:
        """The newest public half of ``name``, whose key is for what it is called.

        Raises:
            ConfigError: there is none.
        """
        for _, path in reversed(self._numbered(name)):
            key = _read(path, Key, WRITABLE, "go-w")
            if key.role == name:
                return key.public
        raise ConfigError(
            f"network.keys: {self.path} lacks the public half of the {name}'s key; copy {name}.NUMBER{PUBLIC}"
            f" there (headrace keys new DIR {name} --role {name})"
        )

    def public(self) -> tuple[dict[str, Key], list[str]]:
        """All public halves by the names of their files, and what is wrong with the files that hold none.

        Raises:
            ConfigError: the directory cannot be listed, or others may add to it.
        """
        keys: dict[str, Key] = {}
        problems = []
        for entry in self._listed():
            try:
                keys[entry.name] = _read(Path(entry.path), Key, WRITABLE, "go-w")
            except FileNotFoundError:
                continue  # revoked since it was listed
            except ConfigError as error:
                problems.append(str(error))
        return keys, problems

    def stamp(self) -> tuple[Any, ...]:
        """Changes whenever the answer of :meth:`public` may have; raises as it does."""
        with contextlib.suppress(FileNotFoundError):  # one that goes meanwhile changes the next stamp
            return tuple((e.name, (s := e.stat()).st_ino, s.st_ctime_ns) for e in self._listed())
        return (time.monotonic_ns(),)

    def new(self, name: str, role: str) -> Path:
        """Make a key, and the buffer's with the first one; a further one for a name leaves those before it valid.

        Returns:
            The secret's file.

        Raises:
            ConfigError: the name cannot be one, or is taken for another role; or it is the buffer's own, which everybody knows.
        """
        check_name(name)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            buffer = self._buffer()
            return self.secret_path(BUFFER) if role == BUFFER else self._make(name, role, buffer)
        except OSError as error:
            raise ConfigError(f"network.keys: {describe_os_error(error)}") from error

    def revoke(self, name: str, *, old: bool = False) -> list[Path]:
        """Remove the public halves of ``name``, or with ``old`` all but the newest; the files that went.

        Raises:
            ConfigError: there is none, or it is the buffer's.
        """
        if name == BUFFER:
            raise ConfigError(
                f"keys: the buffer's own key is in every secret; for a new one, make all keys in a new {self.path}"
            )
        numbered = self._numbered(name)
        if not numbered:
            known = sorted({key.name for key in self.public()[0].values()})
            raise ConfigError(f"keys: no key of {name!r} in {self.path}; there are {', '.join(known) or 'none'}")
        gone = [path for _, path in (numbered[:-1] if old else numbered)]
        try:
            for path in gone:
                path.unlink()
            if not old:
                self.secret_path(name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"network.keys: {describe_os_error(error)}") from error
        return gone

    def _buffer(self) -> str:
        """The public half of the buffer's key, made where there is none."""
        path = self.secret_path(BUFFER)
        with contextlib.suppress(FileNotFoundError):
            return _read(path, Secret, OTHERS, "600").buffer
        halves = [key.public for key in self.public()[0].values() if key.role == BUFFER]
        if halves:
            return halves[-1]  # its secret is where the buffer is
        public, secret = new_pair()
        _write(path, asdict(Secret(BUFFER, BUFFER, secret, public)), 0o600)
        _write(self.path / f"{BUFFER}.1{PUBLIC}", asdict(Key(BUFFER, BUFFER, public, _now())), 0o644)
        return public

    def _make(self, name: str, role: str, buffer: str) -> Path:
        numbered = self._numbered(name)
        for _, path in numbered:
            before = _read(path, Key, 0, "")
            if before.role != role:
                raise ConfigError(
                    f"keys: {name!r} has a key of role {before.role} in {path}; choose another name, or revoke it"
                )
        public, secret = new_pair()
        number = numbered[-1][0] + 1 if numbered else 1
        # First what makes it valid: until the secret is there, the one before it is, and is valid too.
        _write(self.path / f"{name}.{number}{PUBLIC}", asdict(Key(name, role, public, _now())), 0o644)
        _write(self.secret_path(name), asdict(Secret(name, role, secret, buffer)), 0o600)
        return self.secret_path(name)

    def _numbered(self, name: str) -> list[tuple[int, Path]]:
        found = []
        for entry in self._listed():
            stem, _, number = entry.name.removesuffix(PUBLIC).rpartition(".")
            if stem == name and number.isascii() and number.isdigit():
                found.append((int(number), Path(entry.path)))
        return sorted(found)

    def _listed(self) -> list[os.DirEntry[str]]:
        try:
            mode = self.path.stat().st_mode
            with os.scandir(self.path) as entries:
                files = sorted((e for e in entries if e.name.endswith(PUBLIC)), key=lambda e: e.name)
        except OSError as error:
            raise ConfigError(f"network.keys: {describe_os_error(error)}") from error
        if mode & WRITABLE:
            raise ConfigError(f"network.keys: others may add keys to {self.path}: chmod go-w {self.path}")
        if len(files) > MAX_FILES:
            raise ConfigError(f"network.keys: {len(files)} public keys in {self.path}, at most {MAX_FILES}")
        return files


def own_secret(network: NetworkConfig, role: str, identity: str, listener: str = BUFFER) -> Secret | None:
    """The secret of a client of this session role and id; none where no keys are used.

    Args:
        network: names the keys.
        role: of the session.
        identity: of the client.
        listener: who is dialled. The buffer's public half is in every secret, another's lies beside it.

    Raises:
        ConfigError: as :meth:`KeyFiles.secret` and :meth:`KeyFiles.half`.
    """
    if not network.keys:
        return None
    files = KeyFiles.of(network)
    secret = files.secret(*holder(role, identity))
    return secret if listener == BUFFER else replace(secret, buffer=files.half(listener))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read(path: Path, kind: type[T], forbidden: int, mode: str) -> T:
    """One file of keys; raises :class:`ConfigError`, or :class:`FileNotFoundError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of that name must not hold us up
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)  # of what was opened, so that nobody can exchange it in between
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"network.keys: {path} is no file")
            if found.st_mode & forbidden:
                raise ConfigError(
                    f"network.keys: {path} is open to others (mode {found.st_mode & 0o777:04o}): chmod {mode} {path}"
                )
            text = file.read(MAX_BYTES + 1)
        value = json.loads(text) if len(text) <= MAX_BYTES else None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"network.keys: {describe_os_error(error)}") from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"network.keys: {path} holds no key; make it anew with `headrace keys new`")
    try:
        return load(kind, value)
    except ConfigError as error:
        raise ConfigError(f"network.keys: {path}: {error}") from error


def _write(path: Path, values: dict[str, Any], mode: int) -> None:
    """Write a file whole or not at all; it never had wider bits than ``mode``, not even for an instant."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)  # whatever the umask took away
            file.write(json.dumps(values, indent=2) + "\n")
            file.flush()
            os.fsync(descriptor)
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
