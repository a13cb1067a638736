"""Cuts the repository's sample data out of the full data sets; see README.md.

python examples/data/make_samples.py FOLDER_OF_THE_FULL_SETS
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(__file__).parent

TRAIN_IMAGES_PER_CLASS = 200
TEST_IMAGES_PER_CLASS = 50
SPEAKERS = ("george", "jackson", "theo")
TAKES = (0, 1, 5, 6, 7, 8, 9)
"""Takes 0 to 4 of a digit are test recordings; the others are for training."""


def main(full_sets: Path) -> None:
    for split, count in (("train", TRAIN_IMAGES_PER_CLASS), ("test", TEST_IMAGES_PER_CLASS)):
        images = pq.read_table(full_sets / f"cifar10-{split}.parquet")
        write(first_of_each_class(images, count), f"cifar10-sample-{split}.parquet")
    recordings = pq.read_table(full_sets / "spoken-digits.parquet")
    write(chosen_recordings(recordings), "spoken-digits-sample.parquet")


def first_of_each_class(images: pa.Table, count: int) -> pa.Table:
    seen: dict[int, int] = {}
    chosen = []
    for row, label in enumerate(images["label"].to_pylist()):
        if seen.setdefault(label, 0) < count:
            seen[label] += 1
            chosen.append(row)
    return images.take(chosen)


def chosen_recordings(recordings: pa.Table) -> pa.Table:
    endings = tuple(f"_{take}.wav" for take in TAKES)
    paths = pc.struct_field(recordings["audio"], "path").to_pylist()
    speakers = recordings["speaker"].to_pylist()
    return recordings.take(
        [
            row
            for row, (path, speaker) in enumerate(zip(paths, speakers, strict=True))
            if speaker in SPEAKERS and path.endswith(endings)
        ]
    )


def write(table: pa.Table, name: str) -> None:
    # Pages of half a megabyte let the compression see what the headers of the files share.
    pq.write_table(
        table, HERE / name, compression="zstd", compression_level=19, data_page_size=2**19
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
