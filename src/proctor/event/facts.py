"""What is known of an attempt's agent and session, folded from what was recorded: the stronger word holds. Pure."""

from proctor.event.model import Event, FactsStated
from proctor.fact import Fact, settle


class FactsFold:
    """Feed it events; `facts` is what holds so far, by name."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}

    def feed(self, event: Event) -> None:
        if isinstance(event, FactsStated):
            for name, fact in event.facts.items():
                self.state(name, fact)

    def state(self, name: str, fact: Fact) -> None:
        old = self.facts.get(name)
        self.facts[name] = fact if old is None else settle(old, fact)
