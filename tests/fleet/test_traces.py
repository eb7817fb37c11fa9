"""Traces are read whole or refused in one line that says where; their facts are counted, missing ones reported."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from podslice.cli.main import cli
from podslice.fleet.engine.streams import stream
from podslice.fleet.traces.columns import amount, find_format, read_mapping
from podslice.fleet.traces.rows import MAX_LINE
from podslice.fleet.traces.trace import TraceNode, TracePod, open_trace
from podslice.fleet.traces.trace_facts import describe
from podslice.fleet.traces.trace_load import sample_rows
from podslice.fleet.traces.trace_write import write_trace
from podslice.values.errors import InputError
from tests.read_documents import read_document

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
PODS = f"""{OPENB}
p0,12000,16384,1,1000,V100M16|V100M32,LS,Running,0,100,0
p1,3152,1024,1,460,,BE,Pending,50,200,
p2,2000,1024,0,0,,BE,Failed,100,100,100
"""
DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,\n"
    "i1,CN,app_1,64,64,0,0,1,1,320.5,320.5,255.0,300.0,-1,1435629.0,1435629.0,1435760.0\n"
)


def write_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["fleet", "trace", *map(str, words)], catch_exceptions=True)


def pods_of(path: Path, *columns: str) -> list[TracePod]:
    with open_trace(path, read_mapping(columns)) as opened:
        return list(opened.pods())


def test_openb_pods_in_whole_units(tmp_path: Path) -> None:
    """Milli-CPUs, bytes and milliseconds come out of openb's columns; models are split, a pod without GPU has none."""
    first, second, third = pods_of(write_file(tmp_path, "a.csv.gz", PODS))
    assert first == TracePod(
        "p0", 12_000, 16_384 << 20, 1, 1000, ("V100M16", "V100M32"), "LS", "Running", "", 0, 100_000, 0
    )
    assert (second.gpu_milli, second.scheduled, second.arrival) == (460, None, 50_000)
    assert (third.gpus, third.gpu_milli, third.end) == (0, 0, 100_000)


def test_dlrm_pods_before_and_after_the_window(tmp_path: Path) -> None:
    """Empty times mean before and after; GiB with fractions become bytes; -1 instances per node means any number."""
    first, second = pods_of(write_file(tmp_path, "d.csv", DLRM))
    assert (first.arrival, first.end, first.max_per_node, first.owner) == (None, None, 8, "app_0")
    assert (second.memory, second.max_per_node) == (641 << 29, 0)
    assert (second.arrival, second.end) == (1_435_629_000, 1_435_760_000)


@pytest.mark.parametrize(
    ("header", "name", "rows"),
    [
        ("sn,cpu_milli,memory_mib,gpu,model", "openb-nodes", "nodes"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli", "openb-pods-without-times", "pods"),
        (OPENB, "openb-pods", "pods"),
        ("gpu_model,gpu_capacity_num,cpu_num,node_name", "spot-2026-nodes", "nodes"),
        ("id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity", "opendc", "pods"),
        ("id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity,deferrable,deadline", "opendc", "pods"),
    ],
)
def test_known_traces_are_known_by_their_columns(header: str, name: str, rows: str) -> None:
    """Each published trace is recognised by its header."""
    known = find_format(header.split(","))
    assert known is not None
    assert (known.name, known.rows) == (name, rows)


def test_opendc_duration_makes_the_end(tmp_path: Path) -> None:
    """The end is the arrival plus the duration, for traces with durations."""
    text = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity\n7,1000,500,16,33600.0,100000\n"
    (pod,) = pods_of(write_file(tmp_path, "s.csv", text))
    assert (pod.cpu, pod.memory, pod.arrival, pod.end) == (16_000, 100_000 * 10**6, 1000, 1500)


def test_any_columns_by_mapping(tmp_path: Path) -> None:
    """JSON lines with names and units of one's own are read by a mapping."""
    text = '{"job":"a","req":1.5,"mem":2,"t":3}\n{"job":"b","req":0.0001,"t":4}\n'
    path = write_file(tmp_path, "x.jsonl.gz", text.replace('"t":4', '"t":4,"mem":1'))
    first, second = pods_of(path, "cpu=req:cores", "memory=mem:GB", "arrival=t:h", "name=job")
    assert (first.name, first.cpu, first.memory, first.arrival) == ("a", 1500, 2 * 10**9, 3 * 3_600_000)
    assert second.cpu == 1, "what is finer than a milli-CPU is rounded up"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", PODS.replace("3152", "many"), "line 3 column cpu_milli: 'many' is not a number"),
        ("a.csv", PODS.replace("2000,1024", ",1024"), "line 4 column cpu_milli: is empty"),
        ("a.csv", PODS.replace("3152", "-1"), "line 3 column cpu_milli: '-1' is less than 0"),
        ("a.csv", PODS.replace("460", "1460"), "line 3 column gpu_milli: 1460 is not a share of one GPU"),
        ("a.csv", PODS.replace("50,200", "50,20"), "line 3 column deletion_time: ends before it begins"),
        ("a.csv", PODS.replace("3152", "1e99999999"), "line 3 column cpu_milli: '1e99999999' is out of range"),
        ("a.csv", PODS.replace(",BE,Pending", ""), "line 3 has 9 cells for 11 columns"),
        ("a.csv", "", "is empty (its first line names the columns)"),
        ("a.csv", "a,a\n1,2\n", "has two columns 'a'"),
        ("a.csv", "x,y\n1,2\n", "has columns of no known trace: x, y (map the columns: --columns"),
        ("a.csv", OPENB + '\n"p0,1', "line 2 is not CSV: unexpected end of data"),
        ("a.csv", OPENB + "\n" + "x" * (MAX_LINE + 1), "line 2 is longer than 1 MiB"),
        ("a.jsonl", '{"cpu_milli": 1\n', "line 1 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.txt", "", "is not a trace by its name (traces are .csv, .jsonl (.gz) or .parquet)"),
    ],
)
def test_an_error_is_one_line_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    """A damaged trace is refused with the file, the line, the column and the value."""
    path = write_file(tmp_path, name, text)
    with pytest.raises(InputError) as caught, open_trace(path) as opened:
        describe(opened)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_off_gzip_file_is_refused(tmp_path: Path) -> None:
    """A download that broke off is not taken for a short trace."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((PODS + "p3,1,1,0,0,,,,,,\n" * 5000).encode())[:-40])
    with pytest.raises(InputError, match="is not a whole gzip file: it breaks off after line"):
        pods_of(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu", "'cpu' is not a mapping"),
        ("cpus=x", "'cpus' is nothing that a column can mean (did you mean cpu?)"),
        ("cpu=x:GiB", "'GiB' is not a unit of cpu (one of milli, cores)"),
        ("name=x:s", "name is text and has no unit"),
    ],
)
def test_mappings_are_checked(text: str, said: str) -> None:
    """A mapping that cannot be meant is refused with what could be."""
    with pytest.raises(InputError) as caught:
        read_mapping([text])
    assert said in str(caught.value)


def test_a_mapped_column_must_be_there(tmp_path: Path) -> None:
    """A column that the file does not have is named, with the nearest that it has."""
    path = write_file(tmp_path, "a.csv", PODS)
    with pytest.raises(InputError, match="has no column 'cpu_mili' for cpu \\(did you mean cpu_milli"):
        pods_of(path, "cpu=cpu_mili")


def test_facts_of_a_list_of_pods(tmp_path: Path) -> None:
    """Shapes, whole CPUs, shares and what runs at once are counted; a pod that ends makes room at that moment."""
    with open_trace(write_file(tmp_path, "a.csv", PODS)) as opened:
        facts = describe(opened)
    pods = facts.pods
    assert pods is not None
    assert (facts.rows, pods.shapes, pods.whole_cpus, pods.with_part_of_a_gpu) == (3, 3, 2, 1)
    assert pods.at_once is not None
    assert (pods.at_once.pods, pods.at_once.milli_cpus, pods.at_once.milli_gpus) == (2, 15_152, 1460)
    assert (pods.without_schedule, pods.without_length, pods.sorted_by_arrival) == (1, 1, True)
    assert next(one for one in facts.columns if one.name == "gpu_spec").empty == 2
    assert any("Only 67 % of the pods ask for whole CPUs (2 of 3" in note for note in facts.notes)
    assert any("at most 2 pods, 2 GPUs and 16 CPUs run at once" in note for note in facts.notes)


def test_pods_from_before_the_window_run_from_its_beginning(tmp_path: Path) -> None:
    """A pod without arrival counts among those that run at once."""
    with open_trace(write_file(tmp_path, "d.csv", DLRM)) as opened:
        pods = describe(opened).pods
    assert pods is not None
    assert pods.at_once is not None
    assert (pods.at_once.pods, pods.without_arrival, pods.without_end) == (2, 1, 1)


def test_describe_prints_a_document(tmp_path: Path) -> None:
    """`describe -o json` is a document of its schema; the table has the notes and what is missing."""
    path = write_file(tmp_path, "a.csv", PODS)
    document = read_document(run("describe", path, "-o", "json").output, "TraceDescription")
    assert document["pods"]["atOnce"]["pods"] == 2
    text = run("describe", path).output
    assert "Not in it, to be assumed:" in text
    assert "- owners: " in text
    nodes = write_file(tmp_path, "n.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,G2\n")
    assert "96 CPUs, 384 GiB, 8 GPUs of G2" in run("describe", nodes).output


def test_check_lists_every_bad_row(tmp_path: Path) -> None:
    """`check` goes on after a bad row, exits 1, and 0 where nothing is wrong."""
    bad = write_file(tmp_path, "a.csv", PODS.replace("3152", "many").replace("2000,1024", "few,1024"))
    found = run("check", bad, "-o", "json")
    assert found.exit_code == 1
    document = read_document(found.output, "TraceCheck")
    assert [one["problem"] for one in document["problems"]] == [
        "line 3 column cpu_milli: 'many' is not a number",
        "line 4 column cpu_milli: 'few' is not a number",
    ]
    good = run("check", write_file(tmp_path, "b.csv", PODS))
    assert good.exit_code == 0
    assert "3 rows, nothing is wrong" in good.output


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_converted_traces_say_the_same(tmp_path: Path, name: str) -> None:
    """Written pods are read back as the same pods, and equal pods are equal bytes."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="needs pyarrow (pip install '.[fleet-parquet]')")
    source = write_file(tmp_path, "a.csv", PODS)
    assert run("convert", source, "--out", tmp_path / name).exit_code == 0
    wanted = [pod._replace(phase="", scheduled=None) for pod in pods_of(source)]
    assert pods_of(tmp_path / name) == wanted
    before = (tmp_path / name).read_bytes()
    assert run("convert", source, "--out", tmp_path / name).exit_code == 0
    assert (tmp_path / name).read_bytes() == before
    assert not list(tmp_path.glob(".*.new"))


def test_a_trace_is_not_written_over_itself(tmp_path: Path) -> None:
    """The file that is read cannot be the one that is written."""
    source = write_file(tmp_path, "a.csv", PODS)
    assert run("convert", source, "--out", source).exit_code != 0
    assert source.read_text() == PODS


def test_a_bad_row_leaves_no_file(tmp_path: Path) -> None:
    """A conversion that fails writes nothing."""
    source = write_file(tmp_path, "a.csv", PODS.replace("2000,1024", "few,1024"))
    assert run("convert", source, "--out", tmp_path / "out.csv").exit_code != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def test_samples(tmp_path: Path) -> None:
    """Rows at random keep their order and depend on the seed alone; an interval is half open."""
    rows = "".join(f"p{n},1000,1,0,0,,,,{n * 3600},{n * 3600 + 9},\n" for n in range(100))
    source = write_file(tmp_path, "a.csv", f"{OPENB}\n{rows}")

    def names(*options: str) -> list[str]:
        assert run("sample", source, *options, "--out", tmp_path / "s.csv").exit_code == 0
        return [pod.name for pod in pods_of(tmp_path / "s.csv")]

    some = names("--rows", "10", "--seed", "3")
    assert len(some) == 10
    assert some == sorted(some, key=lambda name: int(name[1:])) == names("--rows", "10", "--seed", "3")
    assert some != names("--rows", "10", "--seed", "4")
    assert names("--since", "24", "--until", "26") == ["p24", "p25"]
    assert names("--first", "2") == ["p0", "p1"]


def test_writing_to_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is said in one line, and what was there stays."""

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    target = tmp_path / "out.csv"
    target.write_text("before")
    monkeypatch.setattr("podslice.fleet.traces.trace_write._open", full)
    with pytest.raises(InputError, match=r"out\.csv: cannot be written: No space left on device"):
        write_trace(target, [TraceNode("n", 1, 1)], nodes=True)
    assert target.read_text() == "before"


def test_missing_pyarrow_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow a Parquet file is refused with what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install '.+\[fleet-parquet\]'"):
        pods_of(write_file(tmp_path, "a.parquet", "PAR1"))


def test_amounts_are_exact() -> None:
    """Amounts are counted in decimals, not floats."""
    times = read_mapping(["cpu=x:cores"])["cpu"]
    assert times.unit == "cores"
    assert [amount(text, __import__("decimal").Decimal(1000)) for text in ("0.3", "1.0001", "", "NaN")] == [
        300, 1001, None, None,
    ]  # fmt: skip


def test_all_of_few_rows_are_chosen() -> None:
    """All rows are taken, in their order, if there are no more than asked for."""
    assert sample_rows(stream(1, "sample"), range(5), 9) == [0, 1, 2, 3, 4]
