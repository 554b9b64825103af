"""The configuration: four ways to give a key, which one wins, and what is said about a mistake."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from core.config import Settings
from tools.cli.exits import ExitCode, Failure
from tools.cli.settings import assignments, control_plane_address, known_keys, load

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "tidewheel.toml"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tidewheel.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(**given: object) -> str:
    with pytest.raises(Failure) as caught:
        load(**{"environ": {}, **given})  # type: ignore[arg-type]
    assert caught.value.code is ExitCode.USAGE
    line = caught.value.line()
    assert "\n" not in line
    return line


def test_nothing_given_means_the_defaults() -> None:
    assert load(environ={}) == Settings()


def test_the_sample_file_holds_every_key_with_its_default_in_the_order_of_the_code() -> None:
    document = tomllib.loads(SAMPLE.read_text(encoding="utf-8"))
    assert [f"{section}.{name}" for section, table in document.items() for name in table] == list(known_keys())
    assert load(file=SAMPLE, environ={}) == Settings()
    for path, key in known_keys().items():
        given, default = document[key.section][key.name], asdict(Settings())[key.section][key.name]
        assert type(given) is (list if isinstance(default, tuple) else type(default)), path


def test_the_sample_file_says_what_every_key_is_and_in_which_unit() -> None:
    explained = ""
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        name, equals, _ = line.partition(" = ")
        if line.startswith("#"):
            explained += line
        elif not equals:
            explained = ""
        else:
            assert explained, f"{name} is not explained"
            for ending, unit in (("_s", "second"), ("_ms", "millisecond"), ("_bytes", "byte")):
                assert unit in explained or not name.endswith(ending), f"{name}: its unit is not said"


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "[dispatcher]\ntick_s = 0.5\nbatch_limit = 7\npool_size = 3\n")
    environ = {"TIDEWHEEL_DISPATCHER_TICK_S": "0.6", "TIDEWHEEL_DISPATCHER_BATCH_LIMIT": "8"}
    settings = load(file=file, environ=environ, flags={"dispatcher.tick_s": 0.7, "dispatcher.pool_size": None})
    assert (settings.dispatcher.tick_s, settings.dispatcher.batch_limit) == (0.7, 8)
    assert (settings.dispatcher.pool_size, settings.dispatcher.waiting_limit) == (3, 20_000)


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, '[database]\nurl = "postgresql://somewhere/x"\n')
    assert load(environ={"TIDEWHEEL_CONFIG": str(file)}).database.url == "postgresql://somewhere/x"


def test_every_key_can_be_given_in_the_environment_and_by_a_flag() -> None:
    samples = {str: ("text", "text"), bool: ("true", True), int: ("64", 64), float: ("1", 1.0)}
    samples[tuple[str, ...]] = ("a,b", ("a", "b"))
    fitting = {
        "cluster.bucket_width_ms": "500",
        "telemetry.log_level": "debug",
        "telemetry.log_format": "json",
        "dispatcher.attempt_lease_s": "20",
        "dispatcher.max_message_bytes": "3000000",
    }
    for path, key in known_keys().items():
        text, value = (fitting[path], key.kind(fitting[path])) if path in fitting else samples[key.kind]
        for settings in (load(environ={key.variable: text}), load(environ={}, flags=assignments([f"{path}={text}"]))):
            assert getattr(getattr(settings, key.section), key.name) == value, path


def test_lists_stand_with_commas_in_the_environment() -> None:
    assert load(environ={"TIDEWHEEL_ETCD_ENDPOINTS": "a:1, b:2"}).etcd.endpoints == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[dispatcher]\ntick = 1.0\n", "dispatcher.tick", "dispatcher.tick_s"),
        ("[dispacher]\ntick_s = 1.0\n", "dispacher", "dispatcher"),
        ("[worker]\nexec_enable = true\n", "worker.exec_enable", "worker.exec_enabled"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    tmp_path: Path, text: str, key: str, nearest: str
) -> None:
    line = refused(file=written(tmp_path, text))
    assert f"unknown key {key} " in line
    assert f"did you mean {nearest}?" in line


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    assert "did you mean TIDEWHEEL_DISPATCHER_TICK_S?" in refused(environ={"TIDEWHEEL_DISPATCHER_TICKS": "1"})
    assert "did you mean TIDEWHEEL_ADDRESS?" in refused(environ={"TIDEWHEEL_ADRESS": "x"})


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(Failure, match=r"unknown key dispatcher\.tik"):
        assignments(["dispatcher.tik=1"])
    with pytest.raises(Failure, match=r"takes section\.key=value"):
        assignments(["dispatcher.tick_s"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[dispatcher]\ntick_s = "1"\n', "dispatcher.tick_s must be a number"),
        ("[dispatcher]\nbatch_limit = 1.5\n", "dispatcher.batch_limit must be a whole number"),
        ("[dispatcher]\nbatch_limit = true\n", "dispatcher.batch_limit must be a whole number"),
        ("[worker]\nexec_enabled = 1\n", "worker.exec_enabled must be true or false"),
        ('[worker]\nqueues = "default"\n', "worker.queues must be a list of texts"),
        ("[etcd]\nendpoints = [1]\n", "etcd.endpoints must be a list of texts"),
        ("[database]\nurl = 5\n", "database.url must be text"),
        ("[dispatcher]\ntick_s = -1.0\n", "dispatcher.tick_s must not be negative"),
        ("[dispatcher]\ntick_s = inf\n", "dispatcher.tick_s must not be negative or endless"),
        ("database = 5\n", "database must be a table"),
        ("[database\n", "is not TOML"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_the_expected_type(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    line = refused(file=file)
    assert says in line
    assert str(file) in line


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TIDEWHEEL_DISPATCHER_BATCH_LIMIT", "many"),
        ("TIDEWHEEL_DISPATCHER_TICK_S", "-1"),
        ("TIDEWHEEL_DISPATCHER_TICK_S", "nan"),
        ("TIDEWHEEL_WORKER_EXEC_ENABLED", "yes"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, text: str) -> None:
    assert refused(environ={variable: text}).startswith(variable)


def test_rules_between_keys_name_the_key_and_where_it_was_set() -> None:
    line = refused(environ={"TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "6"})
    assert line.startswith("dispatcher.attempt_lease_s: must be more than twice heartbeat_interval_s")
    assert "set in the environment" in line


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none.toml") in refused(file=tmp_path / "none.toml")


def test_what_is_ours_but_no_key_and_what_kubernetes_adds_is_let_be() -> None:
    environ = {
        "TIDEWHEEL_RUN_ID": "x",
        "TIDEWHEEL_SERVICE_HOST": "10.0.0.1",
        "TIDEWHEEL_PORT": "tcp://10.0.0.1:7233",
        "TIDEWHEEL_PORT_7233_TCP_ADDR": "10.0.0.1",
        "TIDEWHEEL_DISPATCHER_SERVICE_PORT_GRPC": "7233",
        "OTHER": "y",
    }
    assert load(environ=environ) == Settings()
    assert "unknown key TIDEWHEEL_CONTROLPLANE_PORT" in refused(environ={"TIDEWHEEL_CONTROLPLANE_PORT": "7233"})


def test_the_standard_variable_of_collectors_sets_our_key_but_our_own_name_wins() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4317"}
    assert load(environ=environ).telemetry.otlp_endpoint == "http://there:4317"
    environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://traces:4317"
    assert load(environ=environ).telemetry.otlp_endpoint == "http://traces:4317"
    environ["TIDEWHEEL_TELEMETRY_OTLP_ENDPOINT"] = "http://here:4317"
    assert load(environ=environ).telemetry.otlp_endpoint == "http://here:4317"


def test_the_address_comes_from_the_flag_the_environment_the_configuration_or_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, '[controlplane]\nlisten = "127.0.0.1:9"\n')
    environ = {"TIDEWHEEL_CONFIG": str(file)}
    assert control_plane_address(environ={}) == "127.0.0.1:7233"
    assert control_plane_address(environ=environ) == "127.0.0.1:9"
    assert control_plane_address(environ={**environ, "TIDEWHEEL_ADDRESS": "a:1,b:2"}) == "a:1,b:2"
    assert control_plane_address("c:3", environ={**environ, "TIDEWHEEL_ADDRESS": "a:1"}) == "c:3"
