"""Choose nodes for pending pods ahead of the scheduler, evict for them, requeue them."""
