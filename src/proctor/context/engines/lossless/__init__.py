"""The engine `lossless`, which keeps everything that was said and gives the model summaries of what is older.

Its database has all entries, compressed by turn, because its tools and its compaction get no history. `create` is
public.
"""

from proctor.context.engines.lossless.lossless_engine import create as create
