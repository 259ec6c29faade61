import subprocess
import sys


def test_a_script_needs_no_guard(tmp_path):
    """Processes do not run the script that starts them."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "import vcmc\n"
        "from vcmc.data.cache import ShardCache, Task\n"
        "work = lambda shard_cache, task, advance: task.shards[0] + 1\n"
        "with vcmc.executors.Processes(1) as executor:\n"
        "    print(list(executor.map(work, [Task((0,))], ShardCache(None, [None]))))\n"
    )
    result = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    assert result.stdout.split("\n") == ["once", "[1]", ""]
