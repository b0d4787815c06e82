"""The fields that Kubernetes defines and we do not read, by struct.

With them a strict decoder can tell a typing error (`nodeSelctor`) from a field that scheduling does not need.

Generated from the models of kubernetes==37.0.2 by tools/write_known_fields.py; do not edit.
"""


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


OTHER_FIELDS: dict[str, frozenset[str]] = {
    "AWSElasticBlockStore": _fields("fsType partition"),
    "Affinity": _fields(""),
    "AzureDisk": _fields("cachingMode diskName fsType kind readOnly"),
    "CSIDriverOnNode": _fields("nodeID topologyKeys"),
    "CSINode": _fields("apiVersion kind status"),
    "CSINodeSpec": _fields(""),
    "CSIVolume": _fields(
        "controllerExpandSecretRef controllerPublishSecretRef fsType nodeExpandSecretRef "
        "nodePublishSecretRef nodeStageSecretRef readOnly volumeAttributes"
    ),
    "ClaimReference": _fields("apiVersion fieldPath kind resourceVersion"),
    "ClaimSource": _fields("readOnly"),
    "ClaimTemplate": _fields("metadata"),
    "Condition": _fields("lastHeartbeatTime lastTransitionTime message reason"),
    "Container": _fields(
        "args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy "
        "securityContext startupProbe stdin stdinOnce targetContainerName "
        "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    "ContainerImage": _fields(""),
    "ContainerPort": _fields("name"),
    "ContainerStatus": _fields(
        "allocatedResourcesStatus containerID image imageID lastState ready restartCount started state "
        "stopSignal user volumeMounts"
    ),
    "ContainerRestartRule": _fields("exitCodes"),
    "DiskByID": _fields("fsType readOnly secretRef"),
    "ElasticJob": _fields("apiVersion kind"),
    "EphemeralVolume": _fields(""),
    "GCEPersistentDisk": _fields("fsType partition"),
    "ISCSI": _fields(
        "chapAuthDiscovery chapAuthSession fsType initiatorName iscsiInterface lun portals secretRef targetPortal"
    ),
    "LabelRequirement": _fields(""),
    "LabelSelector": _fields(""),
    "Namespace": _fields("apiVersion kind spec status"),
    "Node": _fields("apiVersion kind"),
    "NodeAffinity": _fields(""),
    "NodeSelector": _fields(""),
    "NodeSelectorTerm": _fields(""),
    "NodeSpec": _fields("configSource externalID podCIDR podCIDRs podPreemptionPolicy providerID"),
    "NodeStatus": _fields(
        "addresses config daemonEndpoints features nodeInfo phase runtimeHandlers volumesAttached volumesInUse"
    ),
    "ObjectMeta": _fields(
        "clusterName deletionGracePeriodSeconds finalizers generateName initializers managedFields "
        "resourceVersion selfLink"
    ),
    "OwnerReference": _fields("apiVersion blockOwnerDeletion"),
    "PersistentVolume": _fields("apiVersion kind"),
    "PersistentVolumeClaim": _fields("apiVersion kind"),
    "PersistentVolumeClaimSpec": _fields("dataSource dataSourceRef"),
    "PersistentVolumeSpec": _fields(
        "azureFile cephfs fc flexVolume flocker glusterfs hostPath iscsi local mountOptions nfs "
        "persistentVolumeReclaimPolicy photonPersistentDisk quobyte rbd scaleIO storageos vsphereVolume"
    ),
    "Pod": _fields("apiVersion kind"),
    "PodAffinity": _fields(""),
    "PodAffinityTerm": _fields(""),
    "PodCondition": _fields("lastProbeTime lastTransitionTime message observedGeneration"),
    "PodDisruptionBudget": _fields("apiVersion kind"),
    "PodDisruptionBudgetSpec": _fields("unhealthyPodEvictionPolicy"),
    "PodDisruptionBudgetStatus": _fields(
        "conditions currentHealthy desiredHealthy disruptedPods expectedPods observedGeneration"
    ),
    "PodGroup": _fields("apiVersion kind"),
    "PodResourceClaim": _fields("resourceClaimName resourceClaimTemplateName"),
    "PodSchedulingGroup": _fields(""),
    "PodSpec": _fields(
        "automountServiceAccountToken deprecatedServiceAccount dnsConfig dnsPolicy enableServiceLinks "
        "ephemeralContainers evictionResponders hostAliases hostIPC hostPID hostname "
        "hostnameOverride imagePullSecrets os readinessGates restartPolicy runtimeClassName securityContext "
        "serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
        "workloadRef"
    ),
    "PodStatus": _fields(
        "ephemeralContainerStatuses extendedResourceClaimStatus hostIP hostIPs message "
        "nodeAllocatableResourceClaimStatuses observedGeneration podIP podIPs qosClass reason resize "
        "resourceClaimStatuses volumeHealth"
    ),
    "PodTemplate": _fields(""),
    "PreferredSchedulingTerm": _fields(""),
    "PriorityClass": _fields("apiVersion description kind"),
    "Queue": _fields("apiVersion kind"),
    "RBD": _fields("fsType keyring secretRef user"),
    "ResourceRequirements": _fields("claims"),
    "SchedulingGate": _fields(""),
    "StorageClass": _fields("allowVolumeExpansion apiVersion kind mountOptions parameters reclaimPolicy"),
    "Taint": _fields("timeAdded"),
    "TemplateMeta": _fields(
        "clusterName creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName "
        "generation initializers managedFields namespace ownerReferences resourceVersion selfLink uid"
    ),
    "Toleration": _fields("tolerationSeconds"),
    "Topology": _fields("apiVersion kind"),
    "TopologyRequirement": _fields(""),
    "TopologySelectorTerm": _fields(""),
    "TopologySpreadConstraint": _fields(""),
    "Volume": _fields(
        "azureFile cephfs configMap csi downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs hostPath "
        "image nfs photonPersistentDisk projected quobyte scaleIO secret storageos vsphereVolume"
    ),
    "VolumeCount": _fields(""),
    "VolumeNodeAffinity": _fields(""),
    "VolumeStatus": _fields(
        "accessModes allocatedResourceStatuses allocatedResources capacity conditions "
        "currentVolumeAttributesClassName healthStatus lastPhaseTransitionTime message modifyVolumeStatus "
        "reason"
    ),
    "WeightedPodAffinityTerm": _fields(""),
}
