#include "allhands/python/exported_array.hpp"

#include <new>
#include <utility>

#include "allhands/python/imported.hpp"

namespace nb = nanobind;

namespace allhands::python {
namespace {

// The object that such an array is a view of.
struct ExportedMemory {
  PyObject_HEAD void* data;
  Py_ssize_t num_bytes;
  std::shared_ptr<void> owner;
};

ExportedMemory* memory_of(PyObject* self) {
  return reinterpret_cast<ExportedMemory*>(self);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const ExportedMemory& memory = *memory_of(self);
  return PyBuffer_FillInfo(view, self, memory.data, memory.num_bytes, /*readonly=*/0,
                           flags);
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  memory_of(self)->owner.~shared_ptr();
  PyObject_Free(self);
  Py_DECREF(type);
}

PyType_Slot kExportedSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                                {0, nullptr}};
PyType_Spec kExportedSpec = {"allhands._C.ExportedMemory", sizeof(ExportedMemory), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             kExportedSlots};
PyTypeObject* exported_memory_type = nullptr;  // never freed

nb::object export_array(void* data, std::size_t num_bytes, const char* dtype,
                        std::shared_ptr<void> owner) {
  // Unlike numpy.asarray, this makes no array of references if there is no memory.
  static PyObject* const from_buffer = imported("numpy", "frombuffer");
  auto* const memory = PyObject_New(ExportedMemory, exported_memory_type);
  if (memory == nullptr) throw nb::python_error();
  memory->data = data;
  memory->num_bytes = static_cast<Py_ssize_t>(num_bytes);
  new (&memory->owner) std::shared_ptr<void>(std::move(owner));
  const nb::object held = nb::steal(reinterpret_cast<PyObject*>(memory));
  return nb::handle(from_buffer)(held, dtype);
}

}  // namespace

nb::object export_bytes(void* data, std::size_t num_bytes,
                        std::shared_ptr<void> owner) {
  return export_array(data, num_bytes, "uint8", std::move(owner));
}

nb::object export_int64s(void* data, std::size_t count, std::shared_ptr<void> owner) {
  return export_array(data, count * sizeof(std::int64_t), "int64", std::move(owner));
}

void bind_exported_array(nb::module_&) {
  exported_memory_type =
      reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kExportedSpec));
  if (exported_memory_type == nullptr) throw nb::python_error();
}

}  // namespace allhands::python
