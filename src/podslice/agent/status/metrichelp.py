"""What each metric of the managers means, in the words of `# HELP`."""

from __future__ import annotations

_ENDPOINT = "kubelet_pod_resources_endpoint"
HELP = {
    "kubelet_container_aligned_compute_resources_count": "Containers that are aligned, by boundary and scope.",
    "kubelet_container_aligned_compute_resources_failure_count": "Containers that could not be aligned.",
    "kubelet_cpu_manager_allocation_per_numa": "CPUs that containers have for themselves, by NUMA node.",
    "kubelet_cpu_manager_exclusive_cpu_allocation_count": "CPUs that containers have for themselves.",
    "kubelet_cpu_manager_pinning_errors_total": "Containers that wanted CPUs for themselves and got none.",
    "kubelet_cpu_manager_pinning_requests_total": "Containers that wanted CPUs for themselves.",
    "kubelet_cpu_manager_shared_pool_size_millicores": "Size of the node's shared pool in thousandths of a CPU.",
    "kubelet_memory_manager_pinning_errors_total": "Containers that wanted memory of NUMA nodes and got none.",
    "kubelet_memory_manager_pinning_requests_total": "Containers that wanted memory of NUMA nodes.",
    "kubelet_topology_manager_admission_errors_total": "Pods that could not be aligned and were refused.",
    "kubelet_topology_manager_admission_requests_total": "Pods that were to be aligned.",
    f"{_ENDPOINT}_errors_get": "Calls of Get that failed.",
    f"{_ENDPOINT}_errors_get_allocatable": "Calls of GetAllocatableResources that failed.",
    f"{_ENDPOINT}_errors_list": "Calls of List that failed.",
    f"{_ENDPOINT}_requests_get": "Calls of Get.",
    f"{_ENDPOINT}_requests_get_allocatable": "Calls of GetAllocatableResources.",
    f"{_ENDPOINT}_requests_list": "Calls of List.",
    f"{_ENDPOINT}_requests_total": "Calls of PodResources, by version of the API.",
    "podslice_class_cpus": "CPUs by class, and by who has them: owned, shared, reserved, offline.",
    "podslice_class_fallbacks_total": "Containers that started on shared CPUs of none of their classes.",
    "podslice_plugin_errors_total": "Answers of plugins of the CPU Manager that broke their contract.",
    "podslice_scored_merges_total": "Merges that weighed resources against each other, and whether upstream agrees.",
    "podslice_memory_overcommitted_bytes": "Memory that pods hold on a NUMA node beyond what it has now.",
    "resource_manager_allocation_errors_total": "Allocations that failed, by resource and source.",
    "resource_manager_allocations_total": "Allocations, by resource and source.",
    "podslice_container_assignments": "Running containers with resources of their own, by what they have.",
    "resource_manager_container_assignments": "Containers that were given resources of their own, by what they got.",
}
