//! Opcodes of the command interface.
//!
//! [`Opcode`] lists each command that a driver of a virtual function sends, or may send after a
//! capability of a later device is offered. A listed command need not be supported: the device's
//! table of handlers (`mlx5::command::dispatch`, public as `mlx5::table::support`) decides. It
//! answers a code outside of the list, and a listed code without a handler, with
//! [`super::command::Status::BadOperation`]. Without a handler are CREATE_PSV and DESTROY_PSV, the
//! shared receive queues of the older interface (0x700 to 0x702), the L2 table (0x829 to 0x82b),
//! queries of flow tables, groups and entries, and QUERY_HCA_VPORT_CONTEXT,
//! MODIFY_HCA_VPORT_CONTEXT and QUERY_HCA_VPORT_GID of InfiniBand links.
//!
//! Guests send the codes; `mlx5` reads them from [`super::command::InputHeader`], and prints the
//! names in log lines. The module has no layout of inputs: those are beside their objects. The
//! device runs in the dispatcher's turn.

use super::field::codes;

codes! {
    /// The operation of a command. The names for log lines are those of the device's documents.
    pub enum Opcode: u16 {
        /// Returns a group of capabilities.
        QueryHcaCapabilities = 0x100 "QUERY_HCA_CAP",
        /// Returns the vendor and board identifiers.
        QueryAdapter = 0x101 "QUERY_ADAPTER",
        /// Starts the function.
        InitHca = 0x102 "INIT_HCA",
        /// Stops the function.
        TeardownHca = 0x103 "TEARDOWN_HCA",
        /// Enables the function.
        EnableHca = 0x104 "ENABLE_HCA",
        /// Disables the function.
        DisableHca = 0x105 "DISABLE_HCA",
        /// Returns the number of pages that the device wants.
        QueryPages = 0x107 "QUERY_PAGES",
        /// Gives pages to the device or takes them back.
        ManagePages = 0x108 "MANAGE_PAGES",
        /// Selects capabilities.
        SetHcaCapabilities = 0x109 "SET_HCA_CAP",
        /// Returns the versions of the command interface.
        QueryIssi = 0x10a "QUERY_ISSI",
        /// Selects the version of the command interface.
        SetIssi = 0x10b "SET_ISSI",
        /// Reports the version of the driver.
        SetDriverVersion = 0x10d "SET_DRIVER_VERSION",
        /// Creates a memory key.
        CreateMemoryKey = 0x200 "CREATE_MKEY",
        /// Returns a memory key's context.
        QueryMemoryKey = 0x201 "QUERY_MKEY",
        /// Destroys a memory key.
        DestroyMemoryKey = 0x202 "DESTROY_MKEY",
        /// Returns the reserved memory keys.
        QuerySpecialContexts = 0x203 "QUERY_SPECIAL_CONTEXTS",
        /// Creates an event queue.
        CreateEventQueue = 0x301 "CREATE_EQ",
        /// Destroys an event queue.
        DestroyEventQueue = 0x302 "DESTROY_EQ",
        /// Returns an event queue's context.
        QueryEventQueue = 0x303 "QUERY_EQ",
        /// Creates a completion queue.
        CreateCompletionQueue = 0x400 "CREATE_CQ",
        /// Destroys a completion queue.
        DestroyCompletionQueue = 0x401 "DESTROY_CQ",
        /// Returns a completion queue's context.
        QueryCompletionQueue = 0x402 "QUERY_CQ",
        /// Resizes or moderates a completion queue.
        ModifyCompletionQueue = 0x403 "MODIFY_CQ",
        /// Creates a queue pair.
        CreateQueuePair = 0x500 "CREATE_QP",
        /// Destroys a queue pair.
        DestroyQueuePair = 0x501 "DESTROY_QP",
        /// Moves a queue pair from reset to init.
        ResetToInit = 0x502 "RST2INIT_QP",
        /// Moves a queue pair from init to ready-to-receive.
        InitToReadyToReceive = 0x503 "INIT2RTR_QP",
        /// Moves a queue pair from ready-to-receive to ready-to-send.
        ReadyToReceiveToReadyToSend = 0x504 "RTR2RTS_QP",
        /// Changes a queue pair that is ready to send.
        ChangeReadyToSend = 0x505 "RTS2RTS_QP",
        /// Moves a queue pair from send-queue-error to ready-to-send.
        SendQueueErrorToReadyToSend = 0x506 "SQERR2RTS_QP",
        /// Moves a queue pair to the error state.
        ToError = 0x507 "2ERR_QP",
        /// Moves a queue pair to reset.
        ToReset = 0x50a "2RST_QP",
        /// Returns a queue pair's context.
        QueryQueuePair = 0x50b "QUERY_QP",
        /// Moves a drained queue pair to ready-to-send.
        DrainedToReadyToSend = 0x50c "SQD_RTS_QP",
        /// Executes a management datagram.
        ManagementDatagram = 0x50d "MAD_IFC",
        /// Changes a queue pair in the init state.
        ChangeInit = 0x50e "INIT2INIT_QP",
        /// Creates signature variables.
        CreateSignatureVariables = 0x600 "CREATE_PSV",
        /// Destroys signature variables.
        DestroySignatureVariables = 0x601 "DESTROY_PSV",
        /// Creates a shared receive queue of the older interface.
        CreateSharedReceiveQueue = 0x700 "CREATE_SRQ",
        /// Destroys a shared receive queue of the older interface.
        DestroySharedReceiveQueue = 0x701 "DESTROY_SRQ",
        /// Returns the context of a shared receive queue of the older interface.
        QuerySharedReceiveQueue = 0x702 "QUERY_SRQ",
        /// Sets the limit of a shared receive queue.
        ArmSharedReceiveQueue = 0x703 "ARM_RQ",
        /// Creates a shared receive queue of an XRC domain.
        CreateXrcSharedReceiveQueue = 0x705 "CREATE_XRC_SRQ",
        /// Destroys a shared receive queue of an XRC domain.
        DestroyXrcSharedReceiveQueue = 0x706 "DESTROY_XRC_SRQ",
        /// Returns the context of a shared receive queue of an XRC domain.
        QueryXrcSharedReceiveQueue = 0x707 "QUERY_XRC_SRQ",
        /// Sets the limit of a shared receive queue of an XRC domain.
        ArmXrcSharedReceiveQueue = 0x708 "ARM_XRC_SRQ",
        /// Returns the link state of the virtual port.
        QueryVportState = 0x750 "QUERY_VPORT_STATE",
        /// Changes the link state of the virtual port.
        ModifyVportState = 0x751 "MODIFY_VPORT_STATE",
        /// Returns the virtual port's addresses and MTU.
        QueryNicVportContext = 0x754 "QUERY_NIC_VPORT_CONTEXT",
        /// Changes the virtual port's addresses and MTU.
        ModifyNicVportContext = 0x755 "MODIFY_NIC_VPORT_CONTEXT",
        /// Returns an entry of the GID table.
        QueryRoceAddress = 0x760 "QUERY_ROCE_ADDRESS",
        /// Sets an entry of the GID table.
        SetRoceAddress = 0x761 "SET_ROCE_ADDRESS",
        /// Returns the virtual port of an InfiniBand link.
        QueryHcaVportContext = 0x762 "QUERY_HCA_VPORT_CONTEXT",
        /// Changes the virtual port of an InfiniBand link.
        ModifyHcaVportContext = 0x763 "MODIFY_HCA_VPORT_CONTEXT",
        /// Returns GIDs of an InfiniBand link.
        QueryHcaVportGid = 0x764 "QUERY_HCA_VPORT_GID",
        /// Returns partition keys.
        QueryHcaVportPartitionKey = 0x765 "QUERY_HCA_VPORT_PKEY",
        /// Returns counters of the function's environment.
        QueryVnicEnvironment = 0x76f "QUERY_VNIC_ENV",
        /// Returns the virtual port's counters.
        QueryVportCounter = 0x770 "QUERY_VPORT_COUNTER",
        /// Creates a set of queue pair counters.
        AllocateQueueCounter = 0x771 "ALLOC_Q_COUNTER",
        /// Destroys a set of queue pair counters.
        DeallocateQueueCounter = 0x772 "DEALLOC_Q_COUNTER",
        /// Returns a set of queue pair counters.
        QueryQueueCounter = 0x773 "QUERY_Q_COUNTER",
        /// Creates a protection domain.
        AllocateProtectionDomain = 0x800 "ALLOC_PD",
        /// Destroys a protection domain.
        DeallocateProtectionDomain = 0x801 "DEALLOC_PD",
        /// Allocates a doorbell page.
        AllocateUar = 0x802 "ALLOC_UAR",
        /// Frees a doorbell page.
        DeallocateUar = 0x803 "DEALLOC_UAR",
        /// Reads or writes a register of the port.
        AccessRegister = 0x805 "ACCESS_REG",
        /// Adds a queue pair to a multicast group.
        AttachToMulticastGroup = 0x806 "ATTACH_TO_MCG",
        /// Removes a queue pair from a multicast group.
        DetachFromMulticastGroup = 0x807 "DETACH_FROM_MCG",
        /// Has no effect.
        Nop = 0x80d "NOP",
        /// Creates an XRC domain.
        AllocateXrcDomain = 0x80e "ALLOC_XRCD",
        /// Destroys an XRC domain.
        DeallocateXrcDomain = 0x80f "DEALLOC_XRCD",
        /// Creates a transport domain.
        AllocateTransportDomain = 0x816 "ALLOC_TRANSPORT_DOMAIN",
        /// Destroys a transport domain.
        DeallocateTransportDomain = 0x817 "DEALLOC_TRANSPORT_DOMAIN",
        /// Sets an entry of the table of Ethernet addresses.
        SetL2TableEntry = 0x829 "SET_L2_TABLE_ENTRY",
        /// Returns an entry of the table of Ethernet addresses.
        QueryL2TableEntry = 0x82a "QUERY_L2_TABLE_ENTRY",
        /// Deletes an entry of the table of Ethernet addresses.
        DeleteL2TableEntry = 0x82b "DELETE_L2_TABLE_ENTRY",
        /// Creates a transport interface for receive.
        CreateTir = 0x900 "CREATE_TIR",
        /// Changes a transport interface for receive.
        ModifyTir = 0x901 "MODIFY_TIR",
        /// Destroys a transport interface for receive.
        DestroyTir = 0x902 "DESTROY_TIR",
        /// Returns the context of a transport interface for receive.
        QueryTir = 0x903 "QUERY_TIR",
        /// Creates an Ethernet send queue.
        CreateSendQueue = 0x904 "CREATE_SQ",
        /// Changes the state of an Ethernet send queue.
        ModifySendQueue = 0x905 "MODIFY_SQ",
        /// Destroys an Ethernet send queue.
        DestroySendQueue = 0x906 "DESTROY_SQ",
        /// Returns the context of an Ethernet send queue.
        QuerySendQueue = 0x907 "QUERY_SQ",
        /// Creates an Ethernet receive queue.
        CreateReceiveQueue = 0x908 "CREATE_RQ",
        /// Changes the state of an Ethernet receive queue.
        ModifyReceiveQueue = 0x909 "MODIFY_RQ",
        /// Destroys an Ethernet receive queue.
        DestroyReceiveQueue = 0x90a "DESTROY_RQ",
        /// Returns the context of an Ethernet receive queue.
        QueryReceiveQueue = 0x90b "QUERY_RQ",
        /// Creates a receive memory pool, the basis of a shared receive queue.
        CreateReceivePool = 0x90c "CREATE_RMP",
        /// Changes a receive memory pool.
        ModifyReceivePool = 0x90d "MODIFY_RMP",
        /// Destroys a receive memory pool.
        DestroyReceivePool = 0x90e "DESTROY_RMP",
        /// Returns the context of a receive memory pool.
        QueryReceivePool = 0x90f "QUERY_RMP",
        /// Creates a transport interface for send.
        CreateTis = 0x912 "CREATE_TIS",
        /// Changes a transport interface for send.
        ModifyTis = 0x913 "MODIFY_TIS",
        /// Destroys a transport interface for send.
        DestroyTis = 0x914 "DESTROY_TIS",
        /// Returns the context of a transport interface for send.
        QueryTis = 0x915 "QUERY_TIS",
        /// Creates a table of receive queues.
        CreateReceiveQueueTable = 0x916 "CREATE_RQT",
        /// Changes a table of receive queues.
        ModifyReceiveQueueTable = 0x917 "MODIFY_RQT",
        /// Destroys a table of receive queues.
        DestroyReceiveQueueTable = 0x918 "DESTROY_RQT",
        /// Returns a table of receive queues.
        QueryReceiveQueueTable = 0x919 "QUERY_RQT",
        /// Selects the first flow table.
        SetFlowTableRoot = 0x92f "SET_FLOW_TABLE_ROOT",
        /// Creates a flow table.
        CreateFlowTable = 0x930 "CREATE_FLOW_TABLE",
        /// Destroys a flow table.
        DestroyFlowTable = 0x931 "DESTROY_FLOW_TABLE",
        /// Returns a flow table.
        QueryFlowTable = 0x932 "QUERY_FLOW_TABLE",
        /// Creates a flow group.
        CreateFlowGroup = 0x933 "CREATE_FLOW_GROUP",
        /// Destroys a flow group.
        DestroyFlowGroup = 0x934 "DESTROY_FLOW_GROUP",
        /// Returns a flow group.
        QueryFlowGroup = 0x935 "QUERY_FLOW_GROUP",
        /// Sets a flow entry.
        SetFlowTableEntry = 0x936 "SET_FLOW_TABLE_ENTRY",
        /// Returns a flow entry.
        QueryFlowTableEntry = 0x937 "QUERY_FLOW_TABLE_ENTRY",
        /// Deletes a flow entry.
        DeleteFlowTableEntry = 0x938 "DELETE_FLOW_TABLE_ENTRY",
        /// Creates a flow counter.
        AllocateFlowCounter = 0x939 "ALLOC_FLOW_COUNTER",
        /// Destroys a flow counter.
        DeallocateFlowCounter = 0x93a "DEALLOC_FLOW_COUNTER",
        /// Returns a flow counter.
        QueryFlowCounter = 0x93b "QUERY_FLOW_COUNTER",
        /// Changes a flow table.
        ModifyFlowTable = 0x93c "MODIFY_FLOW_TABLE",
    }
}
