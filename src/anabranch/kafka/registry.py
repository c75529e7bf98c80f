"""Values with a schema in a registry: a zero byte, the schema id in four bytes, and then Avro or JSON.

Avro is decoded by the schema it was written in, whatever version that is, and goes into columns by their names: a field
that a version lacks is NULL, one that is no column is left out, and a narrower type goes into a wider column.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.errors import OptionError, StorageError, UnsupportedFeatureError
from anabranch.kafka.converters import BadValueError

_MAGIC: Final = 0
_HEADER: Final = 5
_NO_SCHEMA: Final = 40403
"""Error code of a registry for an unknown schema id."""


@dataclass
class Registry:
    """Lookup of schemas, each once."""

    settings: Mapping[str, str] = field(repr=False)
    """Client settings, such as ``url`` and ``basic.auth.user.info``."""
    _decoders: dict[int, Callable[[bytes], Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._client = _client(dict(self.settings))

    def decoded(self, value: bytes) -> Any:
        """Decode a value to Python. Raises `BadValueError`, and `StorageError` if the registry does not answer."""
        if len(value) < _HEADER or value[0] != _MAGIC:
            raise BadValueError(
                "does not begin with the number of a schema, as the serializers of a registry write it"
            )
        number = int.from_bytes(value[1:_HEADER])
        decoder = self._decoders.get(number)
        if decoder is None:
            decoder = self._decoders[number] = self._decoder(number)
        return decoder(value[_HEADER:])

    def _decoder(self, number: int) -> Callable[[bytes], Any]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            schema = self._client.get_schema(number)
            references = {one.name: self._text_of(one) for one in schema.references or ()}
        except SchemaRegistryError as error:
            if error.error_code == _NO_SCHEMA:
                raise BadValueError(f"is of schema {number}, which the registry does not have") from None
            raise self._silent(number, error) from error
        except Exception as error:  # the client lets those of its HTTP library through
            raise self._silent(number, error) from error
        if schema.schema_type == "AVRO":
            return _avro(schema.schema_str, references)
        if schema.schema_type == "JSON":
            return _json
        raise BadValueError(
            f"is of schema {number}, which is {schema.schema_type}, and Avro and JSON are read"
        )

    def _text_of(self, reference: Any) -> str:
        return str(self._client.get_version(reference.subject, reference.version).schema.schema_str)

    def _silent(self, number: int, error: Exception) -> StorageError:
        return StorageError(
            f"the schema registry at {self.settings.get('url')} did not tell schema {number}: {error}",
            hint="check value.schema-registry.url, that it runs, and value.schema-registry.basic.auth.user.info.",
            retryable=True,
        )


def _client(settings: dict[str, str]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise UnsupportedFeatureError(
            "values of a schema registry need packages that are not installed",
            feature="schema-registry",
            hint="pip install 'anabranch[schema-registry]', where the driver and where the executors of Spark run.",
        ) from error
    try:
        return SchemaRegistryClient({key: _value(text) for key, text in settings.items()})
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"the client of the schema registry does not take its settings: {error}",
            hint="they are those of confluent-kafka's SchemaRegistryClient, with the prefix 'value.schema-registry.'.",
        ) from error


def _value(text: str) -> str | int | bool:
    """Convert a setting to the type that the client expects."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


def _avro(text: str, references: Mapping[str, str]) -> Callable[[bytes], Any]:
    import fastavro
    from fastavro.schema import SchemaParseException

    try:
        named: dict[str, Any] = {}
        for one in references.values():
            fastavro.parse_schema(json.loads(one), named_schemas=named)
        schema: Any = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, SchemaParseException) as error:
        raise BadValueError(f"has a schema that cannot be read ({str(error)[:100]})") from None

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # of damaged bytes it raises whatever comes
            raise BadValueError(
                f"is no Avro of its schema ({type(error).__name__}: {str(error)[:80]})"
            ) from None
        if stream.read(1):
            raise BadValueError("is longer than its schema says")
        return found

    return decode


def _json(value: bytes) -> Any:
    try:
        return json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise BadValueError(f"is no JSON ({str(error)[:100]})") from None
