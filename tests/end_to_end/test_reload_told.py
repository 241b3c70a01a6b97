"""What a running gateway says of a file that was saved."""

from pathlib import Path

from tests.end_to_end.faulty import run, setting
from tests.end_to_end.test_prices_kept import save


def test_a_setting_that_waits_for_a_restart_is_said_at_each_file_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            first = made.running.path.read_text()
            changed = first.replace("[gateway]", "[gateway]\ndrain_seconds = 7\nmax_connections = 77", 1)
            save(made, changed)
            save(made, changed + "# and once more\n")
            save(made, first)

            told = [
                line for line in await made.log() if line["event"] in ("config_taken", "config_needs_restart")
            ]

            assert [line["event"] for line in told] == [
                "config_taken",
                "config_needs_restart",
                "config_taken",
                "config_needs_restart",
                "config_taken",
            ]
            assert told[1]["settings"] == ["gateway.max_connections", "gateway.drain_seconds"]

    run(work())
