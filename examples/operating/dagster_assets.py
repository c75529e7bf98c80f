"""What has arrived is taken by an asset of Dagster: the command line in a process of its own."""

import subprocess

import dagster

COMMAND = "anabranch -w s3://company-lake/orders run /srv/jobs.py --job clean-orders --available-now --json"


@dagster.asset(retry_policy=dagster.RetryPolicy(max_retries=2, delay=300))
def orders(context: dagster.AssetExecutionContext) -> None:
    done = subprocess.run(COMMAND.split(), capture_output=True, text=True, check=False)
    context.log.info(done.stdout)
    if done.returncode:
        raise dagster.Failure(done.stderr, allow_retries=done.returncode in (1, 5))
