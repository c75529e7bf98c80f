"""What has arrived is taken once an hour by Airflow: the command line in a task. Exit code 4 (another process has the job) skips it."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "orders",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="clean_orders",
        bash_command="exec anabranch -w s3://company-lake/orders run /srv/jobs.py --job clean-orders --available-now",
        skip_on_exit_code=4,
        retries=2,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(hours=1),
    )
