"""Kernels of a text by NVRTC, launched beside torch on its stream, and their times."""
import ctypes
import statistics

import torch


def check(error, what):
    if error:
        raise SystemExit(f"{what}: error {error}")


def compile_text(text, architecture="sm_90a"):
    """The cubin of a text, with the options of codegen/nvrtc.c."""
    nvrtc = ctypes.CDLL("libnvrtc.so.13")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None), "nvrtc")
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--disable-warnings"]
    error = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if error:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise SystemExit(log.value.decode()[-4000:])
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtc")
    cubin = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtc")
    return cubin.raw


class Kernels:
    """Functions of a cubin. Arguments: tensors (their address), None (0), integers (64 bits), ctypes values.
    |shared|: bytes of dynamic shared memory."""

    def __init__(self, cubin):
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.driver, self.module, self.functions = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), {}
        check(self.driver.cuModuleLoadData(ctypes.byref(self.module), cubin), "cuModuleLoadData")

    def function(self, name, shared=0):
        if name not in self.functions:
            f = ctypes.c_void_p()
            check(self.driver.cuModuleGetFunction(ctypes.byref(f), self.module, name.encode()), name)
            if shared:
                check(self.driver.cuFuncSetAttribute(f, 8, shared), name)
            self.functions[name] = f
        return self.functions[name]

    def launch(self, name, blocks, threads, *arguments, shared=0):
        values = []
        for a in arguments:
            if a is None or isinstance(a, torch.Tensor):
                a = ctypes.c_void_p(0 if a is None else a.data_ptr())
            values.append(ctypes.c_int64(a) if isinstance(a, int) else a)
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        f = self.function(name, shared)
        check(self.driver.cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, None), name)


def milliseconds(run, rounds=30, warmup=5):
    """The median time of |run| on the device."""
    for _ in range(warmup):
        run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)
