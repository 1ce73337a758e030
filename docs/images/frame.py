#!/usr/bin/env python3
"""What a command shows on a terminal of COLUMNS by ROWS, as SVG: frame.py COLUMNS ROWS COMMAND...

For pictures in documents only. Runs the command on a pseudo terminal and reads text and colours (SGR
codes); braille cells become dots and blocks rectangles, so that no font has to have them.
"""
import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios

CELL_W, CELL_H, PAD = 8.4, 18.0, 16.0
COLORS = {"31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#56d4dd"}
INK, DIM, PAPER = "#e6edf3", "#8b949e", "#0d1117"


def capture(columns, rows, command):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        os.environ.pop("NO_COLOR", None)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execvp(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    data = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    os.waitpid(pid, 0)
    return data.decode().replace("\r", "")


def cells(line):
    """(column, character, colour, bold) of each visible character."""
    color, bold, column = INK, False, 0
    for code, char in re.findall(r"\x1b\[([0-9;]*)m|(.)", line):
        if char:
            if char != " ":
                yield column, char, color, bold
            column += 1
            continue
        color, bold = INK, False
        for part in code.split(";"):
            if part in COLORS:
                color = COLORS[part]
            elif part == "2":
                color = DIM
            elif part == "1":
                bold = True


def braille(char, x, y):
    """Centres of its dots: bits 0-2 and 6 are the left column, 3-5 and 7 the right one."""
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    for bit, (dx, dy) in enumerate(places):
        if (ord(char) - 0x2800) >> bit & 1:
            yield x + CELL_W * (0.25 + 0.5 * dx), y + CELL_H * (0.125 + 0.25 * dy)


def shape(char, x, y):
    """SVG path data of box and block characters; None for text."""
    mid_x, mid_y, right, low = x + CELL_W / 2, y + CELL_H / 2, x + CELL_W, y + CELL_H
    if char == "█":
        return "fill", f"M{x:.1f} {y + 3:.1f}H{right + .1:.1f}V{low - 3:.1f}H{x:.1f}z"
    if 0x2589 <= ord(char) <= 0x258F:
        return "fill", f"M{x:.1f} {y + 3:.1f}H{x + CELL_W * (0x2590 - ord(char)) / 8:.1f}V{low - 3:.1f}H{x:.1f}z"
    if char == "░":
        return "shade", f"M{x:.1f} {y + 3:.1f}H{right + .1:.1f}V{low - 3:.1f}H{x:.1f}z"
    if char in "│┤":
        tick = f"M{mid_x - 4:.1f} {mid_y:.1f}H{mid_x:.1f}" if char == "┤" else ""
        return "line", f"M{mid_x:.1f} {y:.1f}V{low:.1f}{tick}"
    if char == "━":
        return "line", f"M{x:.1f} {mid_y:.1f}H{right:.1f}"
    if char == "●":
        return "disc", f"M{mid_x:.1f} {mid_y:.1f}h.01"
    return None


def main():
    columns, rows = int(sys.argv[1]), int(sys.argv[2])
    lines = capture(columns, rows, sys.argv[3:]).split("\n")[:rows]
    width, height = columns * CELL_W + 2 * PAD, rows * CELL_H + 2 * PAD
    paths, texts = {}, []
    for row, line in enumerate(lines):
        run = None  # column, text, colour, bold
        y = PAD + row * CELL_H
        for column, char, color, bold in cells(line):
            x = PAD + column * CELL_W
            if 0x2800 <= ord(char) < 0x2900:
                for px, py in braille(char, x, y):
                    paths.setdefault(("dot", color), []).append(f"M{px:.1f} {py:.1f}h0")
            elif shape(char, x, y):
                kind, data = shape(char, x, y)
                paths.setdefault((kind, color), []).append(data)
            elif run and run[0] + len(run[1]) == column and run[2:] == [color, bold]:
                run[1] += char
            else:
                run = [column, char, color, bold]
                texts.append((row, run))
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
          f'viewBox="0 0 {width:.0f} {height:.0f}">')
    print(f'<rect width="100%" height="100%" rx="10" fill="{PAPER}"/>')
    styles = {"dot": 'fill="none" stroke="{0}" stroke-width="2.7" stroke-linecap="round"',
              "disc": 'fill="none" stroke="{0}" stroke-width="7" stroke-linecap="round"',
              "line": 'fill="none" stroke="{0}" stroke-width="1.4"',
              "fill": 'fill="{0}"', "shade": 'fill="{0}" opacity=".35"'}
    for (kind, color), data in paths.items():
        print(f'<path {styles[kind].format(color)} d="{"".join(data)}"/>')
    print('<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="14">')
    for row, (column, text, color, bold) in texts:
        weight = ' font-weight="700"' if bold else ""
        print(f'<text x="{PAD + column * CELL_W:.1f}" y="{PAD + row * CELL_H + 13.5:.1f}" fill="{color}"{weight} '
              f'textLength="{len(text) * CELL_W:.1f}" lengthAdjust="spacingAndGlyphs">{html.escape(text)}</text>')
    print("</g>\n</svg>")


main()
