"""The way from the texts of files to decoded pods, step by step, with all that is wrong or passed over on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from podslice.api.manifests.builtin import REMEDY, check_kind, find_builtin_pod, has_builtin_pod, is_builtin, is_patch
from podslice.api.manifests.found import FoundPod, Others, PassedOver
from podslice.api.manifests.loaded import LoadedPod, load_found
from podslice.api.manifests.objects import ManifestObject, find_objects
from podslice.api.manifests.ownership import Counted
from podslice.api.manifests.report import name_objects, passed_over_errors
from podslice.api.manifests.strangers import remedy_for
from podslice.api.manifests.texts import Text
from podslice.values.errors import InputError, raise_all


class ReadOptions(NamedTuple):
    """Options for reading pods; see `load_pods`. `idle`: a workload that asks for no pods counts as one, as where its
    template is looked at. `needs_pods`: a file without pods is an error."""

    replicas: bool = False
    validate: bool = True
    strict: bool = False
    none_is_fine: bool = False
    idle: bool = False
    needs_pods: bool = True


class Pipeline:
    """One reading of files and folders: `wrong` collects the errors, `passed` the objects of which no pod can be read,
    `unread` the files of folders that cannot be read, `notes` what of the files does not count."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.wrong: list[InputError] = []
        self.passed: list[PassedOver] = []
        self.notes: list[str] = []
        self.unread: dict[str, list[InputError]] = {}
        self._inputs: dict[str, set[str]] = {}
        self._lists_none: set[str] = set()
        self._failed: set[str] = set()
        self._with_pods: set[str] = set()
        self._order: dict[str, int] = {}

    def find_objects(self, text: Text) -> list[ManifestObject]:
        """Return the objects of a file."""
        self._order.setdefault(text.source, len(self._order))
        self.notes += text.notes
        if text.problem is not None:
            if text.folder:
                self.unread.setdefault(text.folder, []).append(text.problem)
            else:
                self.wrong.append(text.problem)
            return []
        self._inputs.setdefault(text.folder or text.source, set()).update(text.kinds)
        if text.lists_none:
            self._lists_none.add(text.source)
        named = text.folder or text.source
        objects, errors = find_objects(text.documents, text.source, REMEDY, named)
        self.wrong += errors
        self._failed |= {named for _ in errors}
        if not text.folder:
            return objects
        # A dump of a cluster is mostly objects that no step below asks for.
        return [one for one in objects if has_builtin_pod(one) or not is_builtin(one)]

    def find_pods(self, found: ManifestObject, others: Others) -> list[FoundPod]:
        """Return the pods of an object, not yet decoded."""
        try:
            if has_builtin_pod(found):
                pod = None if "$patch" in found.data else find_builtin_pod(found)
                if pod is not None and not is_patch(pod):
                    return [pod]
                self.passed.append(PassedOver(found, "it is a patch, not a whole object (kustomize build DIR)"))
                return []
            check_kind(found)
        except InputError as error:
            self._add(error, found)
            return []
        # Most files hold Kubernetes' own objects alone.
        from podslice.api.manifests.custom import find_custom_pods

        pods = []
        for one in find_custom_pods(found, others):
            if isinstance(one, FoundPod):
                pods.append(one)
            else:
                self.passed.append(one)
        return pods

    def drop_passed(self, known: Collection[int]) -> None:
        """Forget objects whose pods are read of other objects."""
        self.passed = [one for one in self.passed if id(one.object) not in known]

    def load(self, found: FoundPod) -> list[LoadedPod]:
        """Return the copies of a pod. One that cannot be read is an error; of an operator's object it is a reason to
        pass it over, since operators complete their templates before the API server sees them."""
        replicas, validate, strict = self.options.replicas, self.options.validate, self.options.strict
        try:
            loaded = list(load_found(found, replicas=replicas, validate=validate, strict=strict))
        except InputError as error:
            if found.is_custom and not strict:
                self.passed.append(PassedOver(found.object, "; ".join(map(_say, error.errors))))
            else:
                self._add(error, found.object)
            return []
        self._with_pods.add(found.object.place.input)
        return loaded

    def check_any(self, counted: Counted) -> None:
        """Note an error for each file or folder without pods, unless something else is wrong with it."""
        fine = self._with_pods | self._failed | {one.place.input for one in counted.doubles}
        fine |= self._lists_none if self.options.none_is_fine else set()
        idle: dict[str, list[ManifestObject]] = {}
        for one in counted.pods:
            if not one.replicas:
                idle.setdefault(one.object.place.input, []).append(one.object)
        self.wrong += [
            self._no_pods(name, kinds, idle.get(name, [])) for name, kinds in self._inputs.items() if name not in fine
        ]

    def _no_pods(self, name: str, kinds: set[str], idle: list[ManifestObject]) -> InputError:
        passed = [one for one in self.passed if one.object.place.input == name]
        if passed:
            problem = next(iter(passed_over_errors(passed))).problem
            return InputError(f"holds no pods; {problem}", source=name, remedy=REMEDY)
        if idle:
            problem = f"holds no pods: {name_objects(idle)} {'asks' if len(idle) == 1 else 'ask'} for 0"
            return InputError(problem, source=name, remedy="let it ask for 1 or more")
        problem = f"holds no pods, only {', '.join(sorted(kinds))}" if kinds else "holds no pods"
        return InputError(problem, source=name, remedy=remedy_for(kinds, REMEDY))

    def passed_over(self) -> Iterator[InputError]:
        """Yield what was passed over: of each file and reason the objects, of each folder the files."""
        yield from passed_over_errors(self.passed)
        for folder, errors in self.unread.items():
            files = "a file that cannot be read" if len(errors) == 1 else f"{len(errors)} files that cannot be read"
            yield InputError(f"passed over: {files}, first {errors[0]}", source=folder)

    def finish(self) -> None:
        """Raise everything that is wrong, in the order of files and documents; with `strict` also what was passed
        over."""
        if self.options.strict:
            self.wrong += self.passed_over()
        order = self._order
        raise_all(sorted(self.wrong, key=lambda one: (order.get(one.source, -1), one.document or 0)))

    def _add(self, error: InputError, found: ManifestObject) -> None:
        self._failed.add(found.place.input)
        self.wrong += [each.at(source=found.place.source, document=found.place.shown) for each in error.errors]


def _say(error: InputError) -> str:
    """Return an error in words for a line that names the file already."""
    return str(InputError(error.problem, path=error.path, remedy=error.remedy))
