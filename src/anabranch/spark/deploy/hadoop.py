"""Lets Spark reach object stores through Hadoop with our settings: it keeps checkpoints through nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.connectors import connector_for
from anabranch.storage.hadoop import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_ENVIRONMENT = "Set by Spark on "
"""How Spark begins to say that it took a setting from a variable of the environment, as our client does if nothing is given."""
_DEFAULTS = "-default.xml"
_WHO = {"gs": ("fs.gs.auth.", "google.cloud.auth.")}
"""Beginnings of the settings, by scheme, that say who is asking; the second is how they were called before."""


def let_reach(spark: SparkSession, location: str, options: Mapping[str, str]) -> None:
    """Tell Hadoop, in the driver and for tasks, how a store is reached; nothing for a folder.

    What the user has set for Hadoop, by ``spark.hadoop.fs...`` or in its own files, stays. It has to be told before
    Spark first looks there.

    Args:
        spark: the session, of a driver in this process.
        location: URL, as Hadoop spells it.
        options: of the store, as they were given to the session or the lake.

    Raises:
        UnsupportedFeatureError: the connector is not installed, or cannot be told what the options say.
        OptionError: an option has no such value.
    """
    connector, context = connector_for(location), context_of(spark)
    if connector is None or context is None:
        return
    jvm: Any = context._jvm  # noqa: SLF001 - the way to the JVM
    conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
    scheme = location.partition(":")[0]
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Exception as error:  # of Py4J: there is no such class
        version = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise UnsupportedFeatureError(
            f"Spark keeps checkpoints in {scheme}:// through {connector.name}, which is not installed",
            feature="hadoop-connector",
            hint=f"start Spark with it: --conf spark.jars.packages={connector.coordinates(version)}; or leave --checkpoint and "
            "--checkpoints out, then they are on this machine's disk, with copies of state in the warehouse.",
        ) from error
    # Of a store whose settings have no form for one bucket, credentials of any kind are the user's own for all of it.
    tells_who = any(
        _is_set(conf, key) for prefix in _WHO.get(scheme, ()) for key in _keys_below(conf, prefix)
    )
    given = hadoop_settings(location, options, with_credentials=not tells_who)
    bucket = f"fs.s3a.bucket.{location.partition('://')[2].partition('/')[0]}."
    general = {key: key.replace(bucket, "fs.s3a.", 1) for key in given}
    if any(_is_set(conf, key) for key in {*given, *general.values()} if _tells_who(key)):
        given = {key: value for key, value in given.items() if not _tells_who(key)}
    for key, value in given.items():
        if not _is_set(conf, key) and not _is_set(conf, general[key]):
            conf.set(key, value)


def _keys_below(conf: Any, prefix: str) -> list[str]:
    return [f"{prefix}{name}" for name in conf.getPropsWithPrefix(prefix)]


def _tells_who(key: str) -> bool:
    """Whether a setting says who is asking: whoever gives one of these gives all of them."""
    return any(part in key for part in (".key", ".token", ".credentials.", ".auth.", ".auth2", ".oauth"))


def _is_set(conf: Any, key: str) -> bool:
    """Whether the user has set something for Hadoop: not its defaults, nor the environment."""
    if conf.get(key) is None:
        return False
    sources = list(conf.getPropertySources(key) or [])
    return any(
        not str(one).endswith(_DEFAULTS) and not str(one).startswith(_OF_ENVIRONMENT) for one in sources
    )
