/**
 * What a process can have, each as two pieces of Python: one makes it before the dump, one asserts after the restore that it is
 * there. Names in the table of docs/internals/checkpoints.md.
 */
export interface KeptRow {
  name: string
  make: string
  check: string
}

/** For both pieces: what Python's library lacks, and a child that stays until it is told to end. */
export const prelude = `
import ctypes, errno, fcntl, json, mmap, os, pty, resource, select, signal, socket, struct, subprocess, sys, termios, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def called(result):
    if result == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def child(work, *args):
    "Runs work in a child that then waits, and returns its number when it has."
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(*args)
            os.write(tell, b".")
        except BaseException as error: os.write(tell, str(error).encode())
        finally:
            os.close(told), os.close(tell)
            while True: signal.pause()
    os.close(tell)
    answer = os.read(told, 999)
    assert answer == b".", answer
    os.close(told)
    return pid
def field(pid, name):
    with open(f"/proc/{pid}/status") as file: return next(line.split(":")[1].strip() for line in file if line.startswith(name + ":"))
def written(path, content=b"content"):
    with open(path, "wb") as file: file.write(content)
    return path
def until(condition):
    while not condition(): time.sleep(0.01)
def quiet(fd):
    return select.select([fd], [], [], 0)[0] == []
`
