"""Documents built, written as JSON, read again and dropped, in sizes that change."""

import json
import random

random.seed(1)


def document(size):
    names = ["name%d" % nth for nth in range(20)]
    return [
        {name: "x" * random.randrange(4, 60) for name in random.sample(names, 6)} | {"id": nth}
        for nth in range(size)
    ]


work = 0
kept = []
for step in range(60):
    size = random.choice([100, 1000, 10000])
    text = json.dumps(document(size))
    kept.append((size, json.loads(text)))
    if len(kept) > 8:
        kept.pop(random.randrange(len(kept)))
    assert all(len(documents) == size for size, documents in kept)
    work += size
print("work", work)
