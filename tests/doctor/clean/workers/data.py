def options(config):
    given = dict(config["data"])
    if given["num_workers"] == 0:
        given["prefetch_factor"], given["persistent_workers"] = None, False
    return given
