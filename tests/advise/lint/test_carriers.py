"""lint finds configurations inside other objects, and names the line in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from podslice.advise.lint.command import lint as command

_MACHINE = ("--from", "pack:1 numa:1(memory=16GiB) core:4 pu:2", "-o", "json")
_BODY = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"


def lint(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, *_MACHINE])


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  kubelet: |\n    "
         + _BODY.replace("\n", "\n    ") + "topologyManagerPolicy: Best\n", 9, 5),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {kubelet: \"" + _BODY.replace("\n", "\\n")
         + "topologyManagerPolicy: Best\"}\n", 3, 8),
        ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n"
         "  - {name: v, value: '2'}\n  - {name: topology-manager-policy, value: Best}\n---\n" + _BODY, 6, 5),
        ("# flags\n--cpu-manager-policy=static\n\n--topology-manager-policy=Best\n", 4, 1),
        ("PID CMD\n/usr/bin/kubelet --v=2 --topology-manager-policy=Best\n", 2, 1),
    ],
    ids=["ConfigMap", "ConfigMap in one line", "flags of kubeadm", "file of flags", "ps"],
)  # fmt: skip
def test_the_line_is_that_of_the_file(tmp_path: Path, text: str, line: int, column: int) -> None:
    """A wrong policy is found where it is written."""
    file = tmp_path / "given.yaml"
    file.write_text(text)
    for arguments in ((str(file),), ("--config", str(file))):
        result = lint(*arguments)
        assert result.exit_code == 1, result.output
        assert f'"line": {line},\n      "column": {column}' in result.stdout


def test_drop_ins_are_linted_where_they_stand(tmp_path: Path) -> None:
    """A finding of a merged configuration is in the file that sets the field."""
    (tmp_path / "main.yaml").write_text(_BODY)
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "10-a.conf").write_text(_BODY + "topologyManagerPolicy: restricted\n")
    (folder / "20-b.conf").write_text(_BODY + "\ntopologyManagerPolicy: Best\n")
    (folder / "readme.txt").write_text("nothing")
    result = lint("--config", str(tmp_path / "main.yaml"), "--config-dir", str(folder))
    assert result.exit_code == 1, result.output
    assert '20-b.conf",' in result.stdout
    assert '"line": 5,' in result.stdout


def test_a_template_inside_a_manifest_is_passed_over(tmp_path: Path) -> None:
    """A ConfigMap whose text a program fills in keeps no manifest from being linted; as --config it is an error."""
    file = tmp_path / "given.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  kubelet: |\n    kind: KubeletConfiguration\n"
        "    maxPods: {{ .Values.pods }}\n"
    )
    assert lint(str(file)).exit_code == 0
    assert lint("--config", str(file)).exit_code == 2
