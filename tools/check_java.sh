#!/bin/sh
# Spark needs Java 17 or newer. Says what is missing and how to get it.
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! command -v "$java" >/dev/null 2>&1; then
    echo "Spark needs Java 17 or newer, and there is no '$java' here."
    echo "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"
    echo "On macOS: brew install openjdk@17. Or set JAVA_HOME to where it is."
    exit 1
fi
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
if [ "${version:-0}" -lt 17 ]; then
    echo "Spark needs Java 17 or newer; '$java' is version ${version:-unknown}."
    echo "Install a newer one and set JAVA_HOME to it."
    exit 1
fi
