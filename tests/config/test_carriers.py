"""Configurations where platforms keep them: what is taken, from where, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from podslice import InputError, load_kubelet_config
from podslice.config.carriers.command_line import find_program
from podslice.config.carriers.recognize import is_lines
from podslice.config.kubelet_file import LoadedConfig

Write = Callable[[str], str]

BODY = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: 0-1
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> str:
        file = tmp_path / "given"
        file.write_text(dedent(text))
        return str(file)

    return _write


def indent(text: str, by: int) -> str:
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


def facts(loaded: LoadedConfig) -> tuple[str, str, int]:
    config = loaded.config
    return config.cpu_manager_policy, config.reserved_system_cpus, config.max_pods


KUBEADM = (
    "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n"
    '  - {name: max-pods, value: "60"}\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n'
    "---\n" + BODY
)


@pytest.mark.parametrize(
    ("text", "expected", "origin"),
    [
        pytest.param(KUBEADM, ("static", "0-1", 60), "a file of kubeadm, KubeletConfiguration, then", id="kubeadm"),
        pytest.param(
            BODY + "---\nkind: JoinConfiguration\napiVersion: kubeadm.k8s.io/v1beta3\n"
            "nodeRegistration: {kubeletExtraArgs: {max-pods: 60, cpu-manager-policy: none}}\n",
            ("none", "0-1", 60), "JoinConfiguration, nodeRegistration.kubeletExtraArgs", id="kubeadm map"),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubelet-config, namespace: kube-system}\n"
            "data:\n  kubelet: |\n" + indent(BODY, 4),
            ("static", "0-1", 110), "ConfigMap kube-system/kubelet-config, data.kubelet", id="ConfigMap"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: other}\n"
            "  data: {a: b}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: mine}\n  data:\n"
            "    kubelet.conf: |\n" + indent(BODY, 6),
            ("static", "0-1", 110), "ConfigMap mine, data[kubelet.conf]", id="one of a List"),
        pytest.param(
            "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: worker\n  kubeadmConfigPatches:\n"
            "  - |\n    kind: KubeletConfiguration\n    cpuManagerPolicy: static\n",
            ("static", "", 110), "Cluster, nodes[0].kubeadmConfigPatches[0]", id="kind"),
        pytest.param(
            "apiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: KubeadmConfigTemplate\nmetadata: {name: md-0}\n"
            "spec: {template: {spec: {joinConfiguration: {nodeRegistration: {kubeletExtraArgs: "
            "{cpu-manager-policy: static, reserved-cpus: 0-3}}}}}}\n",
            ("static", "0-3", 110), "KubeadmConfigTemplate md-0, spec.template.spec.joinConfiguration", id="CAPI"),
        pytest.param(
            "root 7 0.1 /usr/bin/kubelet --v=2 --cpu-manager-policy=static --reserved-cpus 0,1 --max-pods=20\n"
            "me 8 grep --color=auto kubelet\n",
            ("static", "0,1", 20), "a kubelet's command line", id="ps"),
        pytest.param(
            "# flags\n--cpu_manager_policy=static\n--max-pods 20\n", ("static", "", 20), "flags of a kubelet",
            id="a file of flags"),
        pytest.param(
            'KUBELET_KUBEADM_ARGS="--v 2"\nKUBELET_EXTRA_ARGS=\'--cpu-manager-policy=static --max-pods=20\'\n',
            ("static", "", 20), "the variables KUBELET_KUBEADM_ARGS, KUBELET_EXTRA_ARGS", id="environment"),
        pytest.param(
            "[Service]\nExecStart=/usr/bin/kubelet --max-pods=9\n[Service]\nEnvironment=\"A=--max-pods=20\" B=1\n"
            "ExecStart=\nExecStart=/usr/bin/kubelet $A \\\n  --cpu-manager-policy=static\n",
            ("static", "", 20), "ExecStart of a systemd unit", id="unit"),
        pytest.param(
            "#!/bin/bash\nset -e\n/etc/eks/bootstrap.sh c --kubelet-extra-args '--max-pods=20 "
            "--cpu-manager-policy=static'\n",
            ("static", "", 20), "flags that a script passes to kubelets", id="script"),
        pytest.param(
            "minikube start --extra-config=kubelet.max-pods=20 --extra-config 'kubelet.cpu-manager-policy=static'\n",
            ("static", "", 20), "flags that a script passes to kubelets", id="minikube"),
        pytest.param(
            "C:\\k\\kubelet.exe --max-pods=20 --v=6 --cpu-manager-policy=static\n", ("static", "", 20),
            "a kubelet's command line", id="Windows"),
        pytest.param(
            "k3s server --kubelet-arg=cpu-manager-policy=static --kubelet-arg max-pods=20 --disable traefik\n",
            ("static", "", 20), "the options --kubelet-arg of k3s", id="k3s command"),
    ],
)  # fmt: skip
def test_a_carrier_is_read(write: Write, text: str, expected: tuple[str, str, int], origin: str) -> None:
    """The fields count as in the file of a kubelet, and a line says where they were taken from."""
    loaded = load_kubelet_config(write(text))
    assert facts(loaded) == expected
    assert origin in loaded.provenance[0]
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - args:\n    - /usr/bin/kubelet --max-pods=5\n",
        "# kubelet --v=2\nspec:\n  run: |\n    /usr/bin/kubelet --max-pods=5\n",
        "- name: start\n  shell: /usr/bin/kubelet --max-pods=5\n",
        '{"a": "/usr/bin/kubelet --max-pods=5"}',
        "---\nuserData: bootstrap.sh --kubelet-extra-args '--max-pods=5'\n",
    ],
)
def test_a_manifest_that_runs_a_kubelet_is_no_command_line(text: str) -> None:
    """YAML and JSON are read as such, whatever stands in them."""
    assert not is_lines(text)


def test_the_file_of_a_kubelet_needs_no_line(write: Write) -> None:
    """Nothing is said of the plain file."""
    loaded = load_kubelet_config(write(BODY))
    assert (facts(loaded), loaded.provenance) == (("static", "0-1", 110), ())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("/usr/bin/kubelet --config=/a/b.yaml --v=2\n", "/a/b.yaml, which the command line names, sets nothing"),
        ("[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=kubelet --v=1 $EXTRA\n",
         "$EXTRA (set in /etc/default/kubelet) is empty"),
        ("[Service]\nExecStart=/usr/bin/kubelet $KUBELET_ARGS\n", "$KUBELET_ARGS is empty: the value was not given"),
        ("KUBELET_EXTRA_ARGS=--max-pods=5\n", "the kubelet has no other flags, and no file"),
        ("kind: InitConfiguration\napiVersion: kubeadm.k8s.io/v1beta4\nnodeRegistration: {kubeletExtraArgs: "
         "[{name: max-pods, value: '1'}]}\n---\nkind: JoinConfiguration\napiVersion: kubeadm.k8s.io/v1beta4\n"
         "nodeRegistration: {kubeletExtraArgs: [{name: max-pods, value: '5'}]}\n", "the node joins"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_assumed_aloud(write: Write, text: str, line: str) -> None:
    """Values that stand in another file are the kubelet's defaults, and a line says so."""
    assert any(one.startswith("assumed: ") and line in one for one in load_kubelet_config(write(text)).provenance)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("apiVersion: v1\nkind: Config\nclusters: []\n", "is a kubeconfig, which says how to reach a cluster"),
        ("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n",
         "is a KubeProxyConfiguration, the configuration of kube-proxy"),
        ("image: {tag: v1}\nreplicaCount: 2\n", "has no kind, but image, replicaCount, as the values of a Helm chart"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata: {Corefile: x}\n",
         "is ConfigMap coredns with Corefile: it holds no KubeletConfiguration"),
        ("cpuManagerPolicy: static\nmaxPods: 5\n", "has fields of a KubeletConfiguration without its kind"),
        ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n", "is ClusterConfiguration of kubeadm"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", "is a Node, an object of a cluster: it goes to --from"),
        ("kubelet_max_pods: 3\n", "has variables of Kubespray"),
        ("a: b\nc: d\n", "has no kind: it has a, c"),
        ("apiVersion: v1\nkind: List\nitems: []\n", "is an empty list"),
        ("kind: ConfigMap\napiVersion: v1\ndata: {a: 'kind: KubeletConfiguration, x: y'}\n", "data.a: is not valid"),
        ("kubelet --cpu-manager-polic=static\n", "line 1: --cpu-manager-polic: is not a flag of a kubelet (did you"),
        ("kubelet --max-pods=many\n", "--max-pods: 'many' is not a whole number"),
        ("kubelet --cpu-cfs-quota=maybe\n", "--cpu-cfs-quota: 'maybe' is neither true nor false"),
        ("kubelet --kube-reserved=cpu\n", "--kube-reserved: 'cpu' is not KEY=VALUE"),
        ("kubelet --max-pods\n", "--max-pods: needs a value"),
        ("kubelet --v=1 'a\n--b=\"\n", "\"'a\" is not a flag of a kubelet"),
        ("A=1\nB=2\n", "holds variables, none with flags of a kubelet"),
        ("[Service]\nExecStart=/bin/true --x\n", "is a unit of systemd that does not start a kubelet"),
        ("[Service]\nExecStart=/usr/bin/containerd $OPTIONS\n", "is a unit of systemd that does not start a kubelet"),
        ("/bin/kubelet --v=1\n/opt/kubelet --v=2\n", "holds 2 command lines of kubelets, in lines 1, 2"),
    ],
)  # fmt: skip
def test_another_file_is_named(write: Write, text: str, problem: str) -> None:
    """The error is one line that says what the file is."""
    with pytest.raises(InputError) as caught:
        load_kubelet_config(write(text))
    message = str(caught.value)
    assert problem in message
    assert "\n" not in message
    assert "None" not in message


def test_two_configurations_are_named(write: Write) -> None:
    """A file from which podslice would have to choose is an error that names what is there."""
    both = "".join(
        f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  kubelet: |\n"
        + indent(f"{BODY}maxPods: {number}\n", 4)
        for number, name in enumerate(("a", "b"), 5)
    )
    with pytest.raises(
        InputError, match=r"holds 2 configurations of kubelets: ConfigMap a, data\.kubelet, ConfigMap b"
    ):
        load_kubelet_config(write(both))


def test_an_error_names_the_place_in_the_carrier(write: Write) -> None:
    """The path is that of the file, so that the user finds the line."""
    text = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n"
    with pytest.raises(InputError, match=r"kubeletExtraArgs\[cpu-cfs-quota-period\]: cpuCFSQuotaPeriod: .*duration"):
        load_kubelet_config(write(text + "    cpu-cfs-quota-period: soon\n"))


def test_a_long_line_is_read_once() -> None:
    """The program in a line of many words is found without looking at all words behind each."""

    class Word(str):
        __slots__ = ()
        looks = 0

        def startswith(self, *arguments: Any) -> bool:
            Word.looks += 1
            return super().startswith(*arguments)

    words = [Word("1")] * 3000 + [Word("/usr/bin/kubelet"), Word("--v=2")]
    assert find_program(words) == 3000
    assert Word.looks <= 2 * len(words)
