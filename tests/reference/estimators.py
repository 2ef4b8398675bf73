# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's running estimates of the RTT."""

from __future__ import annotations

from collections import deque


class RttEstimator:
    """srtt and mean deviation in the kernel's fixed point (srtt << 3, mdev << 2), us."""

    def __init__(self) -> None:
        self.srtt8 = 0
        self.mdev4 = 0

    def update(self, rtt_us: int) -> None:
        """Take one sample: gains 1/8 and 1/4; a falling RTT raises mdev only by 1/32."""
        if not self.srtt8:
            self.srtt8 = max(rtt_us << 3, 1)
            self.mdev4 = rtt_us << 1
            return
        error = rtt_us - (self.srtt8 >> 3)
        self.srtt8 = max(self.srtt8 + error, 1)
        if error < 0:
            change = -error - (self.mdev4 >> 2)
            if change > 0:
                change >>= 3
        else:
            change = error - (self.mdev4 >> 2)
        self.mdev4 += change

    @property
    def srtt_us(self) -> int:
        return self.srtt8 >> 3

    @property
    def rttvar_us(self) -> int:
        return self.mdev4 >> 2


class WindowedMin:
    """Lowest value of the last `window_us` microseconds."""

    def __init__(self, window_us: int) -> None:
        self.window_us = window_us
        self.queue: deque[tuple[int, int]] = deque()

    def update(self, now_us: int, value: int) -> None:
        while self.queue and self.queue[-1][1] >= value:
            self.queue.pop()
        self.queue.append((now_us, value))
        while now_us - self.queue[0][0] > self.window_us:
            self.queue.popleft()

    @property
    def value(self) -> int:
        """0 before the first sample."""
        return self.queue[0][1] if self.queue else 0
