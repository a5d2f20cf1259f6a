// Functions of CUDA that need no body of their own: those of the driver that take and do what one of the
// runtime does, and those that are refused, each in one sentence that names it. A program that calls none of
// the latter runs.
#include "runtime.hpp"

extern "C" int workbench_refuse(const char* function) { return workbench::capture::refuse(function); }
extern "C" int workbench_succeed() { return 0; }

#if defined(__x86_64__)
#define JUMP "jmp"
#define NAME_OF "lea 1f(%rip), %rdi"
#elif defined(__aarch64__)
#define JUMP "b"
#define NAME_OF "adr x0, 1f"
#endif

// clang-format off
asm(R"(
.text
.macro function name
.balign 16
.globl \name
.type \name, %function
\name:
.endm
.macro refused prefix, names:vararg
.irp name, \names
function \prefix\name
)" NAME_OF "\n" JUMP " workbench_refuse" R"(
1: .asciz "\prefix\name"
.endr
.endm
.macro same driver, runtime, more:vararg
function \driver
)" JUMP R"( \runtime
.ifnb \more
same \more
.endif
.endm

same cuCtxAttach, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v2, cuCtxCreate_v4, cuCtxCreate_v2
same cuCtxDestroy_v2, workbench_succeed, cuCtxDetach, workbench_succeed, cuCtxGetCacheConfig, cudaDeviceGetCacheConfig
same cuCtxGetDevice, cudaGetDevice, cuCtxGetDevice_v2, cudaGetDevice, cuCtxGetLimit, cudaDeviceGetLimit
same cuCtxGetSharedMemConfig, cudaDeviceGetSharedMemConfig
same cuCtxGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange, cuCtxPushCurrent_v2, cuCtxSetCurrent
same cuCtxResetPersistingL2Cache, cudaCtxResetPersistingL2Cache, cuCtxSetCacheConfig, cudaDeviceSetCacheConfig
same cuCtxSetFlags, workbench_succeed, cuCtxSetLimit, cudaDeviceSetLimit
same cuCtxSetSharedMemConfig, cudaDeviceSetSharedMemConfig, cuCtxSynchronize, cudaDeviceSynchronize
same cuCtxSynchronize_v2, cudaDeviceSynchronize, cuDeviceCanAccessPeer, cudaDeviceCanAccessPeer
same cuDeviceGetAttribute, cudaDeviceGetAttribute, cuDeviceGetByPCIBusId, cudaDeviceGetByPCIBusId
same cuDeviceGetCount, cudaGetDeviceCount, cuDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool
same cuDeviceGetMemPool, cudaDeviceGetMemPool, cuDeviceGetP2PAttribute, cudaDeviceGetP2PAttribute
same cuDeviceGetPCIBusId, cudaDeviceGetPCIBusId, cuDeviceGetUuid, cuDeviceGetUuid_v2
same cuDevicePrimaryCtxRelease_v2, workbench_succeed, cuDevicePrimaryCtxReset_v2, workbench_succeed
same cuDevicePrimaryCtxSetFlags_v2, workbench_succeed, cuDeviceSetMemPool, cudaDeviceSetMemPool
same cuDriverGetVersion, cudaDriverGetVersion, cuEventCreate, cudaEventCreateWithFlags
same cuEventDestroy_v2, cudaEventDestroy, cuEventElapsedTime, cudaEventElapsedTime
same cuEventElapsedTime_v2, cudaEventElapsedTime, cuEventQuery, cudaEventQuery, cuEventRecord, cudaEventRecord
same cuEventRecordWithFlags, cudaEventRecordWithFlags, cuEventSynchronize, cudaEventSynchronize
same cuFuncGetName, cudaFuncGetName, cuFuncLoad, workbench_succeed, cuFuncSetAttribute, cudaFuncSetAttribute
same cuFuncSetCacheConfig, cudaFuncSetCacheConfig, cuFuncSetSharedMemConfig, cudaFuncSetSharedMemConfig
same cuGraphAddChildGraphNode, cudaGraphAddChildGraphNode, cuGraphAddEmptyNode, cudaGraphAddEmptyNode
same cuGraphAddDependencies, cudaGraphAddDependencies, cuGraphAddDependencies_v2, cudaGraphAddDependencies_v2
same cuGraphAddHostNode, cudaGraphAddHostNode, cuGraphAddKernelNode, cudaGraphAddKernelNode
same cuGraphAddKernelNode_v2, cudaGraphAddKernelNode, cuGraphAddMemsetNode, cudaGraphAddMemsetNode
same cuGraphClone, cudaGraphClone, cuGraphCreate, cudaGraphCreate, cuGraphDestroy, cudaGraphDestroy
same cuGraphExecDestroy, cudaGraphExecDestroy, cuGraphExecHostNodeSetParams, cudaGraphExecHostNodeSetParams
same cuGraphExecKernelNodeSetParams_v2, cudaGraphExecKernelNodeSetParams
same cuGraphExecMemsetNodeSetParams, cudaGraphExecMemsetNodeSetParams, cuGraphExecUpdate_v2, cudaGraphExecUpdate
same cuGraphGetNodes, cudaGraphGetNodes, cuGraphGetRootNodes, cudaGraphGetRootNodes
same cuGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags
same cuGraphKernelNodeSetParams_v2, cudaGraphKernelNodeSetParams, cuGraphLaunch, cudaGraphLaunch
same cuGraphNodeGetType, cudaGraphNodeGetType, cuGraphUpload, cudaGraphUpload, cuKernelGetAttribute, cuFuncGetAttribute
same cuKernelGetName, cudaFuncGetName, cuKernelGetParamInfo, cuFuncGetParamInfo
same cuKernelSetCacheConfig, cudaFuncSetCacheConfig, cuLaunchHostFunc, cudaLaunchHostFunc
same cuLibraryGetGlobal, cuModuleGetGlobal_v2, cuLibraryGetKernel, cuModuleGetFunction
same cuLogsRegisterCallback, workbench_succeed, cudaLogsRegisterCallback, workbench_succeed
same cuLogsUnregisterCallback, workbench_succeed, cudaLogsUnregisterCallback, workbench_succeed
same cuLibraryLoadData, cuModuleLoadData, cuLibraryLoadFromFile, cuModuleLoad, cuLibraryUnload, workbench_succeed
same cuMemAdvise, cudaMemAdvise, cuMemAdvise_v2, cudaMemAdvise, cuMemAllocAsync, cudaMallocAsync
same cuMemAllocFromPoolAsync, cudaMallocFromPoolAsync, cuMemAllocHost_v2, cudaMallocHost
same cuMemAllocManaged, cudaMallocManaged, cuMemAllocPitch_v2, cudaMallocPitch, cuMemAlloc_v2, cudaMalloc
same cuMemFreeAsync, cudaFreeAsync, cuMemFreeHost, cudaFreeHost, cuMemFree_v2, cudaFree
same cuMemGetInfo_v2, cudaMemGetInfo, cuMemHostAlloc, cudaHostAlloc
same cuMemHostGetDevicePointer_v2, cudaHostGetDevicePointer, cuMemHostGetFlags, cudaHostGetFlags
same cuMemHostRegister_v2, cudaHostRegister, cuMemHostUnregister, cudaHostUnregister
same cuMemPoolCreate, cudaMemPoolCreate, cuMemPoolDestroy, cudaMemPoolDestroy
same cuMemPoolGetAttribute, cudaMemPoolGetAttribute, cuMemPoolSetAccess, cudaMemPoolSetAccess
same cuMemPoolSetAttribute, cudaMemPoolSetAttribute, cuMemPoolTrimTo, cudaMemPoolTrimTo
same cuMemPrefetchAsync, cudaMemPrefetchAsync, cuMemPrefetchAsync_v2, cudaMemPrefetchAsync
same cuModuleLoadDataEx, cuModuleLoadData, cuModuleLoadFatBinary, cuModuleLoadData, cuModuleUnload, workbench_succeed
same cuOccupancyAvailableDynamicSMemPerBlock, cudaOccupancyAvailableDynamicSMemPerBlock
same cuOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessor
same cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
same cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSize
same cuPointerSetAttribute, workbench_succeed, cuProfilerStart, cudaProfilerStart, cuProfilerStop, cudaProfilerStop
same cuStreamAddCallback, cudaStreamAddCallback, cuStreamAttachMemAsync, cudaStreamAttachMemAsync
same cuStreamBeginCapture_v2, cudaStreamBeginCapture, cuStreamCopyAttributes, cudaStreamCopyAttributes
same cuStreamCreate, cudaStreamCreateWithFlags, cuStreamCreateWithPriority, cudaStreamCreateWithPriority
same cuStreamDestroy_v2, cudaStreamDestroy, cuStreamEndCapture, cudaStreamEndCapture
same cuStreamGetAttribute, cudaStreamGetAttribute, cuStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo
same cuStreamGetCtx_v2, cuStreamGetCtx
same cuStreamGetDevice, cudaStreamGetDevice, cuStreamGetFlags, cudaStreamGetFlags, cuStreamGetId, cudaStreamGetId
same cuStreamGetPriority, cudaStreamGetPriority, cuStreamIsCapturing, cudaStreamIsCapturing
same cuStreamQuery, cudaStreamQuery, cuStreamSetAttribute, cudaStreamSetAttribute
same cuStreamSynchronize, cudaStreamSynchronize, cuStreamWaitEvent, cudaStreamWaitEvent
same cuArrayDestroy, cudaFreeArray, cuSurfObjectDestroy, cudaDestroySurfaceObject
same cuTexObjectDestroy, cudaDestroyTextureObject
same cuThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode

refused cu, ArrayGetMemoryRequirements, ArrayGetPlane, ArrayGetSparseProperties, CheckpointProcessCheckpoint
refused cu, CheckpointProcessGetRestoreThreadId, CheckpointProcessGetState, CheckpointProcessLock
refused cu, CheckpointProcessRestore, CheckpointProcessUnlock, CoredumpGetAttribute, CoredumpGetAttributeGlobal
refused cu, CoredumpSetAttribute, CoredumpSetAttributeGlobal, DestroyExternalMemory, DestroyExternalSemaphore
refused cu, DevResourceGenerateDesc, DevSmResourceSplitByCount, ExternalMemoryGetMappedBuffer
refused cu, ExternalMemoryGetMappedMipmappedArray, FlushGPUDirectRDMAWrites, FuncGetModule, FuncSetBlockShape
refused cu, FuncSetSharedSize, GreenCtxCreate, GreenCtxDestroy, GreenCtxGetDevResource, GreenCtxGetId
refused cu, GreenCtxRecordEvent, GreenCtxStreamCreate, GreenCtxWaitEvent, ImportExternalMemory
refused cu, ImportExternalSemaphore, IpcCloseMemHandle, IpcGetEventHandle, IpcGetMemHandle, IpcOpenEventHandle
refused cu, IpcOpenMemHandle_v2, KernelGetLibrary, Launch, LaunchCooperativeKernelMultiDevice, LaunchGrid
refused cu, LaunchGridAsync, LibraryEnumerateKernels, LibraryGetKernelCount, LibraryGetUnifiedFunction, LogsCurrent
refused cu, LogsDumpToFile, LogsDumpToMemory, MipmappedArrayCreate
refused cu, MipmappedArrayDestroy, MipmappedArrayGetLevel, MipmappedArrayGetMemoryRequirements
refused cu, MipmappedArrayGetSparseProperties, ModuleEnumerateFunctions, ModuleGetFunctionCount, ModuleGetSurfRef
refused cu, ModuleGetTexRef, MulticastAddDevice, MulticastBindAddr, MulticastBindMem, MulticastCreate
refused cu, MulticastGetGranularity, MulticastUnbind, OccupancyMaxActiveClusters, OccupancyMaxPotentialClusterSize
refused cu, ParamSetSize, ParamSetTexRef, ParamSetf, ParamSeti, ParamSetv, SignalExternalSemaphoresAsync
refused cu, SurfObjectGetResourceDesc, SurfRefGetArray, SurfRefSetArray, TensorMapReplaceAddress, TexObjectGetResourceDesc
refused cu, TexObjectGetResourceViewDesc, TexObjectGetTextureDesc, UserObjectCreate, UserObjectRelease
refused cu, UserObjectRetain, WaitExternalSemaphoresAsync
refused cuCtx, DisablePeerAccess, EnablePeerAccess, FromGreenCtx, GetDevResource, GetExecAffinity, RecordEvent
refused cuCtx, WaitEvent
refused cuDevice, GetDevResource, GetExecAffinitySupport, GetGraphMemAttribute, GetHostAtomicCapabilities, GetLuid
refused cuDevice, GetNvSciSyncAttributes, GetP2PAtomicCapabilities, GetProperties, GetTexture1DLinearMaxWidth
refused cuDevice, GraphMemTrim, RegisterAsyncNotification, SetGraphMemAttribute, UnregisterAsyncNotification
refused cuEGLStream, ConsumerAcquireFrame, ConsumerConnect, ConsumerDisconnect, ConsumerReleaseFrame
refused cuEGLStream, ProducerConnect, ProducerDisconnect, ProducerPresentFrame, ProducerReturnFrame
refused cuGraph, AddBatchMemOpNode, AddEventRecordNode, AddEventWaitNode
refused cuGraph, AddExternalSemaphoresSignalNode, AddExternalSemaphoresWaitNode, AddMemAllocNode, AddMemFreeNode
refused cuGraph, AddNode_v2, BatchMemOpNodeGetParams, BatchMemOpNodeSetParams, ChildGraphNodeGetGraph
refused cuGraph, ConditionalHandleCreate, DebugDotPrint, DestroyNode, EventRecordNodeGetEvent, EventRecordNodeSetEvent
refused cuGraph, EventWaitNodeGetEvent, EventWaitNodeSetEvent, ExternalSemaphoresSignalNodeGetParams
refused cuGraph, ExternalSemaphoresSignalNodeSetParams, ExternalSemaphoresWaitNodeGetParams
refused cuGraph, ExternalSemaphoresWaitNodeSetParams, GetEdges_v2, HostNodeGetParams, HostNodeSetParams
refused cuGraph, InstantiateWithParams, Instantiate_v2, KernelNodeCopyAttributes, KernelNodeGetAttribute
refused cuGraph, KernelNodeGetParams_v2, KernelNodeSetAttribute, MemAllocNodeGetParams, MemFreeNodeGetParams
refused cuGraph, MemcpyNodeGetParams, MemcpyNodeSetParams, MemsetNodeGetParams, MemsetNodeSetParams, NodeFindInClone
refused cuGraph, NodeGetDependencies_v2, NodeGetDependentNodes_v2, NodeGetEnabled, NodeSetEnabled, NodeSetParams
refused cuGraph, ReleaseUserObject, RemoveDependencies_v2, RetainUserObject
refused cuGraphExec, BatchMemOpNodeSetParams, ChildGraphNodeSetParams, EventRecordNodeSetEvent, EventWaitNodeSetEvent
refused cuGraphExec, ExternalSemaphoresSignalNodeSetParams, ExternalSemaphoresWaitNodeSetParams, GetFlags
refused cuGraphExec, MemcpyNodeSetParams, NodeSetParams
refused cuGraphics, ResourceGetMappedEglFrame, MapResources, ResourceGetMappedMipmappedArray, ResourceGetMappedPointer_v2, ResourceSetMapFlags_v2
refused cuGraphics, SubResourceGetMappedArray, UnmapResources, UnregisterResource
refused cuMem, AddressFree, AddressReserve, BatchDecompressAsync, Create, DiscardAndPrefetchBatchAsync
refused cuMem, DiscardBatchAsync, ExportToShareableHandle, GetAccess, GetAllocationGranularity
refused cuMem, GetAllocationPropertiesFromHandle, GetDefaultMemPool, GetHandleForAddressRange, GetMemPool
refused cuMem, ImportFromShareableHandle, Map, MapArrayAsync, PoolExportPointer, PoolExportToShareableHandle
refused cuMem, PoolGetAccess, PoolImportFromShareableHandle, PoolImportPointer, PrefetchBatchAsync, RangeGetAttribute
refused cuMem, RangeGetAttributes, Release, RetainAllocationHandle, SetAccess, SetMemPool, Unmap, cpy3DBatchAsync_v2
refused cuMem, cpy3DPeer, cpy3DPeerAsync, cpyAtoA_v2, cpyAtoD_v2, cpyAtoHAsync_v2, cpyAtoH_v2, cpyBatchAsync_v2
refused cuMem, cpyDtoA_v2, cpyHtoAAsync_v2, cpyHtoA_v2
refused cuStream, BatchMemOp_v2, BeginCaptureToGraph, GetCaptureInfo_v2, GetGreenCtx
refused cuStream, UpdateCaptureDependencies_v2, WaitValue32_v2, WaitValue64_v2, WriteValue32_v2, WriteValue64_v2
refused cuTexRef, Create, Destroy, GetAddressMode, GetAddress_v2, GetArray, GetBorderColor, GetFilterMode, GetFlags
refused cuTexRef, GetFormat, GetMaxAnisotropy, GetMipmapFilterMode, GetMipmapLevelBias, GetMipmapLevelClamp
refused cuTexRef, GetMipmappedArray, SetAddress2D_v2, SetAddress2D_v3, SetAddressMode, SetAddress_v2, SetArray
refused cuTexRef, SetBorderColor, SetFilterMode, SetFlags, SetFormat, SetMaxAnisotropy, SetMipmapFilterMode
refused cuTexRef, SetMipmapLevelBias, SetMipmapLevelClamp, SetMipmappedArray
refused cuda, ArrayGetMemoryRequirements, ArrayGetPlane, ArrayGetSparseProperties, DestroyExternalMemory
refused cuda, DestroyExternalSemaphore, EventCreateFromEGLSync, ExternalMemoryGetMappedBuffer
refused cuda, ExternalMemoryGetMappedMipmappedArray, FreeMipmappedArray, FuncGetParamInfo
refused cuda, GetExportTable, GetMipmappedArrayLevel, GetSurfaceObjectResourceDesc
refused cuda, GetTextureObjectResourceDesc, GetTextureObjectResourceViewDesc, GetTextureObjectTextureDesc
refused cuda, ImportExternalMemory, ImportExternalSemaphore, IpcCloseMemHandle, IpcGetEventHandle, IpcGetMemHandle
refused cuda, IpcOpenEventHandle, IpcOpenMemHandle, KernelSetAttributeForDevice, LogsCurrent, LogsDumpToFile
refused cuda, LogsDumpToMemory, MallocMipmappedArray
refused cuda, MipmappedArrayGetMemoryRequirements, MipmappedArrayGetSparseProperties, OccupancyMaxActiveClusters
refused cuda, OccupancyMaxPotentialClusterSize, SignalExternalSemaphoresAsync, StreamBeginCaptureToGraph
refused cuda, StreamUpdateCaptureDependencies, UserObjectCreate, UserObjectRelease
refused cuda, UserObjectRetain, VDPAUGetDevice, VDPAUSetVDPAUDevice, WaitExternalSemaphoresAsync
refused cudaDevice, FlushGPUDirectRDMAWrites, GetGraphMemAttribute, GetHostAtomicCapabilities, GetNvSciSyncAttributes
refused cudaDevice, GetP2PAtomicCapabilities, GetTexture1DLinearMaxWidth, GraphMemTrim, RegisterAsyncNotification
refused cudaDevice, SetGraphMemAttribute, UnregisterAsyncNotification
refused cudaEGLStream, ConsumerAcquireFrame, ConsumerConnect, ConsumerConnectWithFlags, ConsumerDisconnect
refused cudaEGLStream, ConsumerReleaseFrame, ProducerConnect, ProducerDisconnect, ProducerPresentFrame
refused cudaEGLStream, ProducerReturnFrame
refused cudaGL, GetDevices, MapBufferObject, MapBufferObjectAsync, RegisterBufferObject, SetBufferObjectMapFlags
refused cudaGL, SetGLDevice, UnmapBufferObject, UnmapBufferObjectAsync, UnregisterBufferObject
refused cudaGraph, AddEventRecordNode, AddEventWaitNode, AddExternalSemaphoresSignalNode
refused cudaGraph, AddExternalSemaphoresWaitNode, AddMemAllocNode, AddMemFreeNode, AddMemcpyNodeFromSymbol
refused cudaGraph, AddMemcpyNodeToSymbol, AddNode, ChildGraphNodeGetGraph, ConditionalHandleCreate, DebugDotPrint
refused cudaGraph, DestroyNode, EventRecordNodeGetEvent, EventRecordNodeSetEvent, EventWaitNodeGetEvent
refused cudaGraph, EventWaitNodeSetEvent, ExternalSemaphoresSignalNodeGetParams, ExternalSemaphoresSignalNodeSetParams
refused cudaGraph, ExternalSemaphoresWaitNodeGetParams, ExternalSemaphoresWaitNodeSetParams, GetEdges
refused cudaGraph, HostNodeGetParams, HostNodeSetParams, InstantiateWithParams, KernelNodeCopyAttributes
refused cudaGraph, KernelNodeGetAttribute, KernelNodeGetParams, KernelNodeSetAttribute, MemAllocNodeGetParams
refused cudaGraph, MemFreeNodeGetParams, MemcpyNodeGetParams, MemcpyNodeSetParams, MemcpyNodeSetParams1D
refused cudaGraph, MemcpyNodeSetParamsFromSymbol, MemcpyNodeSetParamsToSymbol, MemsetNodeGetParams, MemsetNodeSetParams
refused cudaGraph, NodeFindInClone, NodeGetDependencies, NodeGetDependentNodes, NodeGetEnabled, NodeSetEnabled
refused cudaGraph, NodeSetParams, ReleaseUserObject, RemoveDependencies, RetainUserObject
refused cudaGraphExec, ChildGraphNodeSetParams, EventRecordNodeSetEvent, EventWaitNodeSetEvent
refused cudaGraphExec, ExternalSemaphoresSignalNodeSetParams, ExternalSemaphoresWaitNodeSetParams, GetFlags
refused cudaGraphExec, MemcpyNodeSetParams1D, MemcpyNodeSetParamsFromSymbol, MemcpyNodeSetParamsToSymbol, NodeSetParams
refused cudaGraphics, EGLRegisterImage, GLRegisterBuffer, GLRegisterImage, MapResources, ResourceGetMappedEglFrame
refused cudaGraphics, ResourceGetMappedMipmappedArray, ResourceGetMappedPointer, ResourceSetMapFlags
refused cudaGraphics, SubResourceGetMappedArray, UnmapResources, UnregisterResource, VDPAURegisterOutputSurface
refused cudaGraphics, VDPAURegisterVideoSurface
refused cudaLibrary, EnumerateKernels, GetGlobal, GetKernel, GetKernelCount, GetManaged, GetUnifiedFunction, LoadData
refused cudaLibrary, LoadFromFile, Unload
refused cudaMem, DiscardAndPrefetchBatchAsync, DiscardBatchAsync, GetDefaultMemPool, GetMemPool, PoolExportPointer
refused cudaMem, PoolExportToShareableHandle, PoolGetAccess, PoolImportFromShareableHandle, PoolImportPointer
refused cudaMem, PrefetchBatchAsync, RangeGetAttribute, RangeGetAttributes, SetMemPool, cpy2DArrayToArray
refused cudaMem, cpy3DBatchAsync, cpy3DPeer, cpy3DPeerAsync, cpyArrayToArray, cpyBatchAsync, set3DAsync
)");
