"""KubeletConfiguration as a kubelet loads it (decode, default, parse, validate), and PodslicePolicy."""
