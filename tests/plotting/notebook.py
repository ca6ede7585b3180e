"""A notebook that is not there."""

import types


class Notebook:
    """What IPython offers in a notebook, and what was shown."""

    def __init__(self, kernel=True):
        self.shown, self.updates = [], []
        shell = types.SimpleNamespace(kernel=object() if kernel else None)
        module = types.ModuleType
        core = module("IPython.core.getipython")
        shows = module("IPython.display")
        self.modules = {
            "IPython": module("IPython"), "IPython.core": module("IPython.core"),
            "IPython.core.getipython": core, "IPython.display": shows,
        }  # fmt: skip
        vars(self.modules["IPython"])["version_info"] = (9, 0)  # which matplotlib reads
        vars(core)["get_ipython"] = lambda: shell
        vars(shows).update(Image=types.SimpleNamespace, display=self.display)

    def display(self, image, *, display_id):
        assert display_id is True
        self.shown.append(image)
        return types.SimpleNamespace(update=self.updates.append)
