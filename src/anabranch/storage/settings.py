"""Settings of object stores from the environment and from a file.

Each option is taken from the first of these that has it:

1. what was given to the call;
2. the environment: ``s3.access-key`` is ``ANABRANCH_S3_ACCESS_KEY``;
3. the file that ``ANABRANCH_CONFIG`` names, or else ``~/.anabranch/config.toml``: a section for each place, of which the
   longest counts that the URL begins with::

       ["s3://company-lake"]
       s3.endpoint = "https://minio.example.com"
       s3.profile = "lake"

Whoever says who is asking (a key, a profile, a service account) says all of it: nothing of another source's credentials is added.
What none of them has, the store's own client looks for (``AWS_ACCESS_KEY_ID``...).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from anabranch.errors import OptionError
from anabranch.storage.object_options import KINDS, StoreKind, own_options

CONFIG: Final = "ANABRANCH_CONFIG"
_DEFAULT: Final = Path("~/.anabranch/config.toml")


def settings_for(url: str, kind: StoreKind, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a store by their names in `kind`, from everywhere. Raises `OptionError`."""
    settings = _from_file(url, kind)
    for source in (_from_environment(kind), own_options(kind, given)):
        if any(option.identity and _says(source, option.name) for option in kind.options):
            credentials = {option.name for option in kind.options if option.identity or option.secret}
            settings = {name: value for name, value in settings.items() if name not in credentials}
        settings |= source
    return settings


def _says(source: Mapping[str, str], name: str) -> bool:
    """Whether it tells who is asking; ``anonymous=false`` does not."""
    return name in source and not (name == "anonymous" and source[name].strip().lower() == "false")


def variables_of(options: Mapping[str, str]) -> dict[str, str]:
    """The environment in which stores find these options. Raises `OptionError` for what is no option of a store."""
    found: dict[str, str] = {}
    for key, value in options.items():
        kind = next((kind for kind in KINDS if key.startswith(kind.prefixes)), None)
        if kind is None:
            prefixes = ", ".join(f"{kind.prefixes[0]}*" for kind in KINDS)
            raise OptionError(f"{key} is no option of a store", hint=f"There are {prefixes}.")
        found |= {_variable(kind, name): text for name, text in own_options(kind, {key: value}).items()}
    return found


def _variable(kind: StoreKind, name: str) -> str:
    return f"ANABRANCH_{kind.prefixes[0]}{name}".replace(".", "_").replace("-", "_").upper()


def _from_environment(kind: StoreKind) -> dict[str, str]:
    known = {_variable(kind, option.name): option.name for option in kind.options}
    unknown = [name for name in os.environ if name.startswith(_variable(kind, "")) and name not in known]
    if unknown:
        raise OptionError(
            f"{unknown[0]}, a variable of the environment, is no option of {kind.title}",
            hint=f"There are: {', '.join(known)}.",
        )
    return {name: text for variable, name in known.items() if (text := os.environ.get(variable))}


def _from_file(url: str, kind: StoreKind) -> dict[str, str]:
    named = os.environ.get(CONFIG)
    path = Path(named or _DEFAULT).expanduser()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            raise OptionError(f"{CONFIG} names {path}, which is not there") from None
        return {}
    except (OSError, ValueError) as error:
        raise OptionError(f"the settings in {path} cannot be read: {error}") from None
    place = _comparable(url)
    within = {section: _comparable(section) for section in content}
    fitting = [section for section, start in within.items() if place.startswith(start)]
    if not fitting:
        return {}
    section = max(fitting, key=lambda one: len(within[one]))
    try:
        if "://" not in section:
            raise OptionError("it names no place", hint='Write ["s3://bucket"], and the settings below it.')
        told = dict(_flat(content[section], ""))
        variables_of(told)  # which refuses what is no option of any store
        return own_options(kind, told)
    except OptionError as error:
        raise OptionError(f'["{section}"] in {path}: {error.message}', hint=error.hint) from None


def _comparable(url: str) -> str:
    """A URL that begins like another only if its place is the other's or below it."""
    scheme, slashes, place = url.partition("://")
    if not slashes:
        return url
    kind = next((kind for kind in KINDS if scheme.lower() in kind.schemes), None)
    return f"{scheme if kind is None else kind.schemes[0]}://{place.rstrip('/')}/"


def _flat(section: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Keys with dots are tables within tables in TOML."""
    if not isinstance(section, dict):
        raise OptionError(
            "it is no table of settings", hint='Write ["s3://bucket"], and the settings below it.'
        )
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value).lower() if isinstance(value, bool) else str(value)
